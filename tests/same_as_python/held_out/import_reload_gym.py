# Checks: importlib.reload of own module with an environment class, reload of queue and gymnasium.core, deleting gymnasium from sys.modules and importing anew.
import importlib, sys, pathlib
pathlib.Path("myenv.py").write_text("class Env:\n    v = 1\n    def step(self, a):\n        return self.v, a\n")
sys.dont_write_bytecode = True
import myenv
old = myenv.Env()
print(old.step(1))
pathlib.Path("myenv.py").write_text("class Env:\n    v = 22\n    def step(self, a):\n        return self.v, a, 'new'\n")
importlib.invalidate_caches()
importlib.reload(myenv)
print(old.step(1), myenv.Env().step(1), isinstance(old, myenv.Env))
import queue
importlib.reload(queue)
q = queue.Queue(); q.put(1); print(q.get())
import gymnasium
first = gymnasium.Env
importlib.reload(gymnasium)
for k in [k for k in sys.modules if k.split(".")[0] == "gymnasium"]:
    del sys.modules[k]
import gymnasium
print(first is gymnasium.Env)
class E(gymnasium.Env):
    def step(self, a): return 0, 1.0, False, False, {}
    def reset(self, **k): return 0, {}
class F(first):
    def step(self, a): return 1, 1.0, False, False, {}
print(E().step(0), F().step(0))
