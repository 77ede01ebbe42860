# Checks: recursion limit, switch interval, int digits limit, getallocatedblocks: default values at start; set by the script and kept in threads.
import sys, threading
print(sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits(), sys.get_asyncgen_hooks(), sys.get_coroutine_origin_tracking_depth())
sys.setswitchinterval(1e-5); sys.setrecursionlimit(20000); threading.stack_size(256 * 1024 * 1024)
def deep(n): return 0 if n == 0 else 1 + deep(n - 1)
out = []
t = threading.Thread(target=lambda: out.append(deep(15000))); t.start(); t.join()
print(out, sys.getswitchinterval(), sys.getrecursionlimit())
sys.setrecursionlimit(60)
class Env:
    def reset(self): return 0
    def step(self, a): return a
e = Env(); print(e.reset(), e.step(3))
