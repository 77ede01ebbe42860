# Checks: at the end the script has removed or replaced builtins and library functions (open, len, json.dumps, os.path.join, threading.Lock, os.getpid, time.time, print): its exit stays code 3 and quiet.
import builtins, os, json, threading, time, sys, io, pickle, struct
def nope(*a, **k): raise AssertionError("somebody called a sabotaged function")
class Env:
    def reset(self): return 0
    def step(self, a): return a
e = Env(); e.reset(); [e.step(i) for i in range(20)]
print("before", flush=True)
json.dumps = json.dump = pickle.dumps = struct.pack = os.path.join = os.makedirs = os.rename = os.replace = nope
builtins.open = io.open = nope; time.time = time.perf_counter = time.monotonic = time.perf_counter_ns = time.time_ns = nope
os.getpid = lambda: 1; builtins.len = nope; builtins.sorted = nope; os.write = nope; os.environ.clear()
print("after", flush=True)
e.step(5)
sys.exit(3)
