# Checks: super().step chains, diamond MRO, __init_subclass__, abstract base, mixins, step defined in the base only, override removed at run time, __class__ assignment, isinstance hooks.
import abc
calls = []
class Base(abc.ABC):
    registry = []
    def __init_subclass__(cls, tag=None, **k): super().__init_subclass__(**k); cls.registry.append((cls.__name__, tag, "step" in cls.__dict__))
    @abc.abstractmethod
    def step(self, a): calls.append("Base"); return a
    def reset(self): return 0
class A(Base, tag="a"):
    def step(self, a): calls.append("A"); return super().step(a) + 1
class B(Base):
    def step(self, a): calls.append("B"); return super().step(a) * 10
class C(A, B, tag="c"):
    def step(self, a): calls.append("C"); return super(C, self).step(a)
class D(C): pass
print(D().step(1), calls, [c.__name__ for c in D.__mro__], Base.registry)
try: Base()
except TypeError as e: print(e)
print(Base.__abstractmethods__, Base.step.__isabstractmethod__, getattr(A.step, "__isabstractmethod__", False), "step" in D.__dict__, D.step is C.step)
calls.clear(); del C.step; print(D().step(2), calls)
d = D(); d.__class__ = B; print(d.step(3), type(d).__name__)
A.step = lambda self, a: "replaced"; print(D().step(1))
d2 = D(); d2.step = lambda a: ("instance", a); print(d2.step(4), D.step(d2, 4), "step" in vars(d2)); del d2.step; print(d2.step(1))
orig = Base.step
def patched(self, a): return ("patched", orig(self, a))
Base.step = patched; print(B().step(1) if False else Base.step(d2, 3)); Base.step = orig; print(Base.step is orig, Base.__dict__["step"] is orig)
class Duck:
    @classmethod
    def __subclasshook__(cls, c): return hasattr(c, "step")
print(D.__base__.__name__, Base.__subclasses__()[0].__name__, len(Base.__subclasses__()))
