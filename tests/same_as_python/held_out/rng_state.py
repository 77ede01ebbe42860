# Checks: random and numpy global generators: seeded sequences through hooked code equal Python's; hooks draw nothing; PYTHONHASHSEED fixed hash order.
import random, numpy as np
random.seed(0); np.random.seed(0)
class Env:
    def reset(self): return random.random()
    def step(self, a): return np.random.rand(), random.random(), False, {}
class ReplayBuffer:
    d = list(range(100))
    def push(self, x): self.d.append(x)
    def sample(self, n): return random.sample(self.d, n)
e, b = Env(), ReplayBuffer(); out = [e.reset()]
for i in range(50): out.append(e.step(i)[:2]); b.push(i); out.append(b.sample(3))
import hashlib; print(hashlib.md5(repr(out).encode()).hexdigest(), random.getstate()[1][-1], np.random.get_state()[2], random.random(), np.random.randn())
print(list({"a", "b", "c", "d", "zeta"}), np.random.default_rng(5).integers(0, 100, 5), np.geterr(), np.get_printoptions()["precision"])
