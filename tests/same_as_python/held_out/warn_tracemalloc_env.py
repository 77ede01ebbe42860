# Checks: PYTHONTRACEMALLOC=2: tracing with 2 frames; a ResourceWarning shows the allocation place.
import tracemalloc, warnings
print(tracemalloc.is_tracing(), tracemalloc.get_traceback_limit())
warnings.simplefilter("always")
def leak():
    open("leak.txt", "w")
leak()
