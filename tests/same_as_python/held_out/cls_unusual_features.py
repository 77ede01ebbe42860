# Checks: environment classes with __slots__, __getattr__, __getattribute__, __setattr__ that forbids, metaclass, __call__ metaclass, properties that raise, __eq__/__hash__/__bool__ overrides, without __module__, frozen dataclass, NamedTuple, Enum.
import dataclasses, typing, enum
class S:
    __slots__ = ("t",)
    def reset(self): self.t = 0; return 0
    def step(self, a): self.t += a; return self.t
s = S(); s.reset(); print(s.step(2), hasattr(s, "__dict__"), S.__slots__)
try: s.x = 1
except AttributeError as e: print(e)
class G:
    def __getattr__(self, n):
        log.append(n)
        if n.startswith("__"): raise AttributeError(n)
        return lambda *a: (n, a)
log = []
g = G(); print(g.step(1), g.reset(), g.anything(2), log)
class GA:
    def __getattribute__(self, n): log2.append(n); return object.__getattribute__(self, n)
    def reset(self): return 0
    def step(self, a): return a
log2 = []; x = GA(); x.reset(); x.step(1); print(log2)
class No:
    def __setattr__(self, n, v): raise TypeError("read only " + n)
    def __delattr__(self, n): raise TypeError("no del")
    def reset(self): return 0
    def step(self, a): return a
n = No(); print(n.reset(), n.step(1))
class Meta(type):
    def __new__(m, name, b, ns, **k): ns["made"] = sorted(x for x in ns if not x.startswith("__")); return super().__new__(m, name, b, ns)
    def __call__(c, *a): o = super().__call__(*a); o.by_meta = True; return o
    def __setattr__(c, n, v): raise TypeError(f"class is sealed: {n}")
    def __getattribute__(c, n): meta_log.append(n) if not n.startswith("__") else None; return super().__getattribute__(n)
meta_log = []
class M(metaclass=Meta):
    def reset(self): return 0
    def step(self, a): return a + 1
m = M(); print(m.step(1), m.by_meta, M.made, meta_log)
class P:
    @property
    def observation_space(self): raise RuntimeError("not ready")
    @property
    def unwrapped(self): raise KeyError("no")
    def __eq__(self, o): raise ValueError("no eq")
    __hash__ = None
    def __bool__(self): raise ValueError("no bool")
    def __len__(self): raise ValueError("no len")
    def __repr__(self): raise ValueError("no repr")
    def reset(self): return self
    def step(self, a): return self, self, self, self
    def sample(self, n): return self
    def push(self, x): return self
p = P(); r = p.reset(); print(len(p.step(1)), r is p, p.sample(2) is p, p.push(p) is p)
T = type("T", (), {"step": lambda s, a: a * 2, "reset": lambda s: 0, "__module__": None}); print(T().step(4), T.__module__)
exec("class X:\n def reset(self): return 0\n def step(self, a): return a", ns := {}); print(ns["X"]().step(5), ns["X"].__module__)
@dataclasses.dataclass(frozen=True)
class D:
    k: int = 2
    def reset(self): return 0
    def step(self, a): return self.k * a
print(D().step(3), D(), D() == D(2), hash(D()) == hash(D()), dataclasses.fields(D)[0].name, dataclasses.replace(D(), k=5).step(1))
class NT(typing.NamedTuple):
    a: int = 1
    def reset(self): return 0
    def step(self, x): return self.a + x
print(NT().step(1), NT(), NT._fields)
class En(enum.Enum):
    A = 1
    def reset(self): return 0
    def step(self, x): return (self.name, x)
print(En.A.step(1), list(En))
