# Checks: introspection of Env.step: isfunction, ismethod, __name__, __qualname__, __doc__, __module__, __wrapped__, __dict__, __defaults__, __code__, signature, type hints, getsource, class __dict__ and dir.
import inspect, typing, types
class Env:
    "An environment."
    limit: int = 3
    def reset(self, *, seed: int = None) -> float:
        "reset doc"
        return 0.0
    def step(self, action: int, /, scale: float = 1.0, *rest, flag: bool = False, **kw) -> typing.Tuple[float, bool]:
        """step doc"""
        return action * scale, flag
    step.tag = "mine"
    def close(self): pass
    def render(self): return "frame"
e = Env(); print(e.reset(), e.step(2), e.step(2, 3.0, flag=True))
for c in (Env, e):
    for n in ("reset", "step", "close", "render"):
        f = getattr(c, n)
        print(n, type(f).__name__, inspect.isfunction(f), inspect.ismethod(f), f.__name__, f.__qualname__, f.__doc__, f.__module__, hasattr(f, "__wrapped__"), inspect.signature(f), f.__dict__)
print(Env.step.__defaults__, Env.step.__kwdefaults__, Env.step.__code__.co_name, Env.step.__code__.co_argcount, Env.step.__closure__, Env.step.__annotations__, typing.get_type_hints(Env.step))
print(sorted(Env.__dict__), sorted(vars(e)), [n for n in dir(e) if not n.startswith("__")], isinstance(Env.__dict__["step"], types.FunctionType))
print(inspect.getsource(Env.step), Env.step is Env.step, e.step == e.step, e.step.__func__ is Env.step, e.step.__self__ is e, hash(e.step) == hash(e.step))
print(inspect.getfullargspec(Env.step).args, Env.step.__globals__ is globals(), [m[0] for m in inspect.getmembers(Env, inspect.isfunction)])
try: e.step(action=1)
except TypeError as x: print(x)
try: e.step()
except TypeError as x: print(x)
try: Env.step()
except TypeError as x: print(x)
