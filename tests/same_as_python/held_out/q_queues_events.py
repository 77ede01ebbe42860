# Checks: queue.Queue/LifoQueue/PriorityQueue/SimpleQueue subclasses, timeouts, task_done/join, Condition, Semaphore, Barrier, Event between threads: order, counts and exceptions.
import queue, threading, time
class MyQ(queue.Queue):
    def _put(self, x): log.append(("put", x)); super()._put(x)
    def get(self, *a, **k): log.append("get"); return super().get(*a, **k)
log = []
q = MyQ(2)
def prod():
    for i in range(6): q.put(i)
    q.put(None)
def cons():
    while (x := q.get()) is not None: got.append(x); q.task_done()
    q.task_done()
got = []
ts = [threading.Thread(target=f) for f in (prod, cons)]; [t.start() for t in ts]; q.join(); [t.join() for t in ts]
print(got, [x for x in log if x != "get"], log.count("get"), q.unfinished_tasks)
try: q.task_done()
except ValueError as e: print(e)
t = time.monotonic()
try: q.get(True, 0.1)
except queue.Empty: print("Empty", 0.09 < time.monotonic() - t < 1)
p = queue.PriorityQueue(); [p.put(x) for x in (3, 1, 2)]; l = queue.LifoQueue(); [l.put(x) for x in (1, 2)]; s = queue.SimpleQueue(); s.put(1, block=False)
print([p.get() for _ in range(3)], l.get(), s.get(timeout=1), s.empty(), type(s).__name__, queue.Queue.get.__qualname__, queue.SimpleQueue.__module__)
ev = threading.Event(); threading.Timer(0.05, ev.set).start(); print(ev.wait(2), threading.Event().wait(0.01))
b = threading.Barrier(2); th = threading.Thread(target=b.wait); th.start(); print(b.wait(2) in (0, 1)); th.join()
sem = threading.Semaphore(1); print(sem.acquire(timeout=0.01), sem.acquire(timeout=0.01))
lock = threading.RLock(); print(lock.acquire(), lock.acquire(timeout=1), type(threading.Lock()).__name__); lock.release()
try: lock.release(); lock.release()
except RuntimeError as e: print(e)
c = threading.Condition()
with c: print(c.wait(0.01), c.wait_for(lambda: True, 1))
