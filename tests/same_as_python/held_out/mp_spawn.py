# Checks: multiprocessing spawn: module re-imported as __mp_main__ exactly once per child, args pickled, exit codes, sys.argv and sys.path in the child.
import multiprocessing as mp, sys, os
print("module level", __name__, sys.argv[1:], os.path.basename(sys.argv[0]), os.path.basename(__file__), flush=True)
class Cfg:
    def __init__(self, x): self.x = x
def child(cfg, conn):
    conn.send((cfg.x, type(cfg).__module__, __name__, sys.modules["__main__"].__name__, sys.path[0] == os.path.dirname(os.path.abspath(__file__)), mp.current_process().name))
    conn.close()
    sys.exit(11)
if __name__ == "__main__":
    ctx = mp.get_context("spawn")
    a, b = ctx.Pipe()
    p = ctx.Process(target=child, args=(Cfg(4), b)); p.start()
    print(a.recv()); p.join(); print(p.exitcode)
    q = ctx.Queue(); p = ctx.Process(target=q.put, args=("via queue",)); p.start(); print(q.get(timeout=5)); p.join(); print(p.exitcode)
