# Checks: deepcopy, copy and pickle of environments and buffers in mid-run (also with __reduce__, __getstate__, __deepcopy__), instance dicts contain nothing foreign; copies step on their own.
import copy, pickle, json, random, collections
class Env:
    def __init__(self): self.rng = random.Random(3); self.t = 0
    def reset(self): self.t = 0; return 0
    def step(self, a): self.t += 1; return self.t, self.rng.random()
class Red(Env):
    def __reduce__(self): return (Red, (), {"t": self.t})
    def __setstate__(self, s): self.__dict__.update(s); print("setstate", sorted(s))
class ReplayBuffer:
    def __init__(self, n): self.memory = collections.deque(maxlen=n); self.pos = 0
    def push(self, *a): self.memory.append(a); self.pos += 1
    def sample(self, n): return random.sample(self.memory, n)
    def __len__(self): return len(self.memory)
e = Env(); e.reset(); e.step(0)
c, d, p = copy.copy(e), copy.deepcopy(e), pickle.loads(pickle.dumps(e))
print(d.step(0) == p.step(0) == e.step(0), c.t, vars(e).keys(), type(p) is Env)
r = Red(); r.step(1); r2 = pickle.loads(pickle.dumps(r)); r3 = copy.deepcopy(r); print(r2.t, r3.t)
b = ReplayBuffer(5)
for i in range(9): b.push(i, i * i)
random.seed(1); x = b.sample(3); b2 = pickle.loads(pickle.dumps(b)); random.seed(1); print(x, b2.sample(3) == x, len(b2), vars(b), copy.deepcopy(b).memory == b.memory)
print(json.dumps(vars(b), default=list), pickle.dumps(Env.step), pickle.dumps(b.push, 2)[:40])
