# Checks: tracemalloc: off at start, start/stop by the script, snapshots group to the script's lines, no leak visible in hooked loops.
import tracemalloc, gc
print(tracemalloc.is_tracing())
class Env:
    def reset(self): return 0
    def step(self, a): return a, 0.0, False, {}
e = Env(); e.reset()
tracemalloc.start()
keep = [bytes(1000) for _ in range(100)]
s = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, __file__)])
print(max(st.size for st in s.statistics("lineno")) > 100000)
gc.collect(); a = tracemalloc.get_traced_memory()[0]
for i in range(3000): e.step(i)
gc.collect(); b = tracemalloc.get_traced_memory()[0]
print("grown less than 1 MB:", b - a < 1_000_000)
tracemalloc.stop(); print(tracemalloc.is_tracing())
