# Checks: time functions frozen by the script (freezegun style: modules' attributes replaced, time going backwards) do not hang sleep, queues or the end of the program.
import time, datetime, queue, threading
class Frozen(datetime.datetime):
    @classmethod
    def now(cls, tz=None): return cls(2020, 1, 1)
datetime.datetime = Frozen
n = [1000.0]
def back():
    n[0] -= 1; return n[0]
for name in ("time", "perf_counter", "process_time", "thread_time"): setattr(time, name, back)
for name in ("time_ns", "perf_counter_ns", "monotonic_ns", "process_time_ns"): setattr(time, name, lambda: int(back()) * 10**9)
time.sleep(0.01)
q = queue.Queue(); q.put(1); print(q.get(timeout=1))
try: q.get(timeout=0.02)
except queue.Empty: print("empty")
print(threading.Event().wait(0.01), datetime.datetime.now(), time.time(), time.perf_counter_ns())
