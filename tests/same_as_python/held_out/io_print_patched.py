# Checks: the script (like tqdm, rich, loguru users) replaces builtins.print, time.sleep, time.perf_counter, builtins.open; its own versions are called, restored originals work.
import builtins, time
real_print, real_sleep, real_pc, real_open = print, time.sleep, time.perf_counter, open
calls = []
builtins.print = lambda *a, **k: calls.append(("print", a))
time.sleep = lambda s: calls.append(("sleep", s))
time.perf_counter = lambda: calls.append("pc") or 0.0
time.time = lambda: 1e9
time.monotonic = lambda: 5.0
def my_open(*a, **k):
    calls.append(("open", a[0])); return real_open(*a, **k)
builtins.open = my_open
class Env:
    def reset(self): print("reset"); return 0
    def step(self, a): time.sleep(100); return a
e = Env(); e.reset(); e.step(1); e.step(2)
with open("x.txt", "w") as f: f.write("data")
print(time.perf_counter(), time.time())
import threading
t = threading.Thread(target=e.step, args=(7,)); t.start(); t.join()
real_print(calls)
# left patched until exit: nothing of the recorder may land in calls or fail
import atexit; atexit.register(lambda: real_print(len(calls)))
