# Checks: Process subclasses with own run, names of children (Process-1, -2 ...), os.fork in the child, environment workers with a pipe (the vector-env pattern).
import multiprocessing as mp
class Env:
    def __init__(self, i): self.i = i
    def reset(self): return self.i
    def step(self, a): return self.i + a, 1.0, a > 2, {}
class Worker(mp.get_context("fork").Process):
    def __init__(self, conn, i):
        super().__init__(); self.conn = conn; self.i = i
    def run(self):
        env = Env(self.i)
        while True:
            cmd, arg = self.conn.recv()
            if cmd == "close": break
            self.conn.send(getattr(env, cmd)(*arg))
ws = []
for i in range(2):
    a, b = mp.Pipe(); w = Worker(b, i); w.start(); ws.append((w, a))
    print(w.name)
for cmd, arg in (("reset", ()), ("step", (1,)), ("step", (3,))):
    for w, a in ws: a.send((cmd, arg))
    print([a.recv() for w, a in ws])
for w, a in ws: a.send(("close", None)); w.join()
print([w.exitcode for w, a in ws])
