# Checks: exceptions out of queue.get_nowait, time.sleep("x"), print(file=bad) and print(object with bad __str__): no extra frames in tracebacks.
import queue, time, traceback, sys
class Bad:
    def write(self, s):
        raise OSError("disk full")
class BadStr:
    def __str__(self):
        raise ValueError("bad str")
def depth(f, *a, **k):
    try:
        f(*a, **k)
    except BaseException as e:
        print(type(e).__name__, e, [(fr.name, fr.filename.rsplit("/")[-1]) for fr in traceback.extract_tb(e.__traceback__)])
depth(queue.Queue().get_nowait)
depth(queue.Queue().get, timeout=0.01)
depth(queue.Queue().get, timeout=-1)
q = queue.Queue(1); q.put(1)
depth(q.put_nowait, 2)
depth(q.put, 2, True, 0.01)
depth(queue.SimpleQueue().get_nowait)
depth(time.sleep, "x")
depth(time.sleep, -1)
depth(time.sleep)
depth(print, "x", file=Bad())
depth(print, BadStr())
depth(print, sep=3)
depth(print, nonsense=1)
depth(print, "x", end=b"")
time.sleep("uncaught")
