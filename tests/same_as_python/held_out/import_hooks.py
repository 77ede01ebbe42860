# Checks: meta_path finders and loaders of the script (generated modules, also at position 0), importlib.reload, path_hooks, sys.modules replacement, module __getattr__.
import importlib, importlib.abc, importlib.util, importlib.machinery, sys, types
class Gen(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self): self.seen = []
    def find_spec(self, name, path, target=None):
        self.seen.append(name)
        if name.startswith("gen_"):
            return importlib.util.spec_from_loader(name, self)
    def create_module(self, spec): return None
    def exec_module(self, m): m.value = m.__name__.upper(); m.__getattr__ = lambda n: "lazy " + n
g = Gen()
sys.meta_path.insert(0, g)
import gen_a, colorsys, gen_env
print(gen_a.value, gen_env.step, g.seen)
importlib.reload(gen_a)
print(g.seen[-1], sys.meta_path[0] is g, len(sys.meta_path))
sys.meta_path.remove(g)
m = types.ModuleType("gymnasium_fake"); m.Env = object
sys.modules["gymnasium_fake"] = m
from gymnasium_fake import Env
spec = importlib.util.find_spec("wave")
spec.loader = importlib.util.LazyLoader(spec.loader)
lazy = importlib.util.module_from_spec(spec); sys.modules["wave"] = lazy; spec.loader.exec_module(lazy)
print(type(lazy).__name__, lazy.Wave_read.__name__, type(lazy).__name__)
sys.modules["blocked"] = None
try:
    import blocked
except ModuleNotFoundError as e:
    print(e)
src = importlib.util.spec_from_file_location("dyn_mod", __file__)
print(src.name, src.loader.name)
old = __import__
calls = []
import builtins
def spy(name, *a, **k):
    calls.append(name)
    return old(name, *a, **k)
builtins.__import__ = spy
import stringprep
builtins.__import__ = old
print(calls[0], stringprep.__name__)
