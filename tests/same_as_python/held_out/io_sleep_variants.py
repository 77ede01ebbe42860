# Checks: time.sleep with 0, float, int, bool, Fraction-like __index__, numpy float; imported as "from time import sleep"; returns None; lasts at least as long.
from time import sleep, monotonic
import time
class Idx:
    def __index__(self): return 0
print([sleep(x) for x in (0, 0.0, True * 0, Idx(), 1e-9)])
t = monotonic(); sleep(0.1); print(monotonic() - t >= 0.1, sleep is time.sleep)
for bad in (None, "1", float("nan"), float("inf"), -0.5, 1e20, [1]):
    try: sleep(bad)
    except Exception as e: print(type(e).__name__, e)
try: sleep(seconds=1)
except TypeError as e: print(e)
