# Checks: Manager (dict, list, Queue, Lock), shared_memory and SharedMemoryManager; no leaked-resource warnings on stderr.
import multiprocessing as mp
from multiprocessing import shared_memory, managers
def work(d, l, q, name):
    d["x"] = 1; l.append(2); q.put(3)
    s = shared_memory.SharedMemory(name=name); s.buf[0] = 77; s.close()
if __name__ == "__main__":
    ctx = mp.get_context("fork")
    with ctx.Manager() as m:
        d, l, q = m.dict(), m.list(), m.Queue()
        s = shared_memory.SharedMemory(create=True, size=16)
        p = ctx.Process(target=work, args=(d, l, q, s.name)); p.start(); p.join()
        print(dict(d), list(l), q.get(timeout=2), s.buf[0], p.exitcode)
        s.close(); s.unlink()
    with managers.SharedMemoryManager() as sm:
        sl = sm.ShareableList([1, "a", 2.5]); print(list(sl)); sl.shm.close()
