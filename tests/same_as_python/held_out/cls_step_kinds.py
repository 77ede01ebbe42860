# Checks: step as staticmethod, classmethod, partial, partialmethod, callable object, lambda, builtin, property returning a function, generator, coroutine, class, cached_property, descriptor.
import functools, asyncio, operator
class Call:
    def __call__(self, a): return ("callable", a)
class Desc:
    def __get__(self, o, t): return lambda a: ("descriptor", o is not None, a)
class E1:
    @staticmethod
    def step(a): return ("static", a)
    def reset(self): return 0
class E2:
    @classmethod
    def step(cls, a): return (cls.__name__, a)
    reset = classmethod(lambda cls: 1)
class E3:
    def _step(self, k, a): return ("partialmethod", k, a)
    step = functools.partialmethod(_step, 5)
    reset = functools.partial(max, 1, 2)
class E4: step = Call(); reset = Call
class E5: step = lambda self, a: ("lambda", a); reset = lambda self: 0
class E6: step = len; reset = list
class E7:
    @property
    def step(self): return lambda a: ("property", a)
    @property
    def reset(self): raise AttributeError("no reset here")
class E8:
    def step(self, n): yield from range(n)
    def reset(self): return iter(())
class E9:
    async def step(self, a): return ("coro", a)
    async def reset(self): return 0
class E10: step = Desc(); reset = Desc()
class E11:
    @functools.cached_property
    def step(self): print("computed once"); return lambda a: a
    def reset(self): return None
class E12:
    @functools.lru_cache(None)
    def step(self, a): print("computed"); return a
    def reset(self): return NotImplemented
    step.info = 1
for C in (E1, E2, E3, E4, E5, E7, E10, E11, E12): print(C.__name__, C().step(3), C().step(3))
print(E1.step(4), E2.step(4), E2.reset(), E3().reset(), E4().step(1), type(E4().reset()).__name__, E6().step("abc"), E6.step is len, E6().reset("ab"))
print(list(E8().step(3)), asyncio.run(E9().step(1)), hasattr(E7(), "reset"), E12.step.cache_info(), E12().reset(), type(E1.__dict__["step"]).__name__, type(E2.__dict__["step"]).__name__, type(E3.__dict__["step"]).__name__)
