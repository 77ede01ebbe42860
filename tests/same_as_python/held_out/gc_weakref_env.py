# Checks: objects passed to and from hooked methods die at the same moment as in Python: weakrefs to env, observation, replay items, exceptions; refcounts.
import weakref, sys, gc, queue
gc.disable()
class Obs: pass
class Env:
    def reset(self): return Obs()
    def step(self, a): return Obs(), 1.0, False, {}
    def __del__(self): print("env deleted")
class ReplayBuffer:
    def __init__(self): self.d = []
    def push(self, *x): self.d.append(x)
    def add(self, x): self.d.append(x)
    def sample(self, n): return self.d[-n:]
    def __len__(self): return len(self.d)
env = Env(); o = env.reset(); w = weakref.ref(o); print(sys.getrefcount(o)); del o; print("obs dead", w() is None)
o = env.step(1)[0]; w = weakref.ref(o); o = None; print("step obs dead", w() is None)
b = ReplayBuffer(); x = Obs(); wx = weakref.ref(x); b.push(x); b.add(x); print(sys.getrefcount(x)); b.d.clear(); del x; print("item dead", wx() is None)
q = queue.Queue(); x = Obs(); wx = weakref.ref(x); q.put(x); del x; q.get(); print("queued dead", wx() is None)
class E2(Env):
    def step(self, a):
        local = Obs(); self.w = weakref.ref(local); raise ValueError("x")
e2 = E2()
try: e2.step(1)
except ValueError as e: print("alive in traceback", e2.w() is not None)
print("dead after", e2.w() is None)
we = weakref.ref(env); del env; print("env gone", we() is None)
del e2; print("end", weakref.getweakrefcount(b), weakref.getweakrefcount(Env))
