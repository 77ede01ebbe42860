# Checks: reset/step returning odd things (None, generator, self, huge tuple, tuple subclass, exception class), raising StopIteration, mutable identity kept, kwargs order.
class Env:
    def reset(self, *a, **k): return k
    def step(self, *a, **k): return a
class Tup(tuple): pass
class E2:
    obs = [1]
    def reset(self): return self.obs
    def step(self, a):
        if a == 0: return None
        if a == 1: return Tup((self.obs, 1, False, {}))
        if a == 2: return (i for i in range(2))
        if a == 3: return ValueError
        if a == 4: raise StopIteration("end")
        if a == 5: return [self.obs, float("nan"), None, {"x": self}]
        return ...
print(list(Env().reset(z=1, a=2, seed=3).items()), Env().step(), Env().step(1, 2), Env().step(*range(300))[-1])
e = E2(); print(e.reset() is E2.obs, e.step(0), type(e.step(1)).__name__, e.step(1)[0] is E2.obs, list(e.step(2)), e.step(3), e.step(5)[3]["x"] is e, e.step(9))
def loop():
    it = map(e.step, [0, 4, 0]); yield from it
print(list(loop()))
try: next(iter(map(e.step, [4])))
except StopIteration as x: print(x.value)
def runner():
    while True: yield e.step(4)
next(runner())
