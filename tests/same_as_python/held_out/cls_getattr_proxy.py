# Checks: wrapper and proxy objects (__getattr__ delegation, weakref.proxy, functools.singledispatchmethod, types.SimpleNamespace as env, module as env).
import weakref, types, functools, sys
class Env:
    def reset(self): return "reset"
    def step(self, a): return ("step", a)
    def __private_method(self): return "private"
    def call(self): return self.__private_method()
class Proxy:
    def __init__(self, e): object.__setattr__(self, "_e", e)
    def __getattr__(self, n): seen.append(n); return getattr(self._e, n)
    def __setattr__(self, n, v): setattr(self._e, n, v)
    def __dir__(self): return ["step"]
seen = []
e = Env(); p = Proxy(Proxy(e)); print(p.reset(), p.step(1), p.call(), seen); p.x = 3; print(e.x, dir(p))
w = weakref.proxy(e); print(w.step(2)); del p, e
try: w.step(3)
except ReferenceError as x: print(x)
ns = types.SimpleNamespace(step=lambda a: a + 1, reset=lambda: 0); print(ns.step(1), ns.reset())
class SD:
    @functools.singledispatchmethod
    def step(self, a): return "object"
    @step.register
    def _(self, a: int): return "int"
    @step.register(str)
    def _(self, a): return "str"
    def reset(self): return 0
print(SD().step(1), SD().step("x"), SD().step(2.0))
mod = types.ModuleType("envmod"); exec("def step(a): return a * 3\ndef reset(): return 0", mod.__dict__); print(mod.step(2))
def step(a): return "global function named step"
def reset(): return "global reset"
print(step(1), reset(), sys.modules["__main__"].step(1))
