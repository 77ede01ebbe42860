# Checks: user-defined replay buffers: push/add/store/append/insert/sample with odd signatures, return values, exceptions, list/deque/dict subclasses, __len__ false, prioritized with sum tree, generator sample, same random draws.
import random, collections
T = collections.namedtuple("T", "s a r")
class ReplayMemory:
    def __init__(self): self.memory = collections.deque([], maxlen=4)
    def push(self, *args): self.memory.append(T(*args))
    def sample(self, k): return random.sample(self.memory, k)
    def __len__(self): return len(self.memory)
class Deq(collections.deque):
    def sample(self, k, *, replace=False): return random.choices(self, k=k) if replace else random.sample(list(self), k)
    add = push = collections.deque.append
class Gen(list):
    add = list.append
    def sample(self, n):
        for _ in range(n): yield random.choice(self)
class Prioritized:
    def __init__(self): self.d = {}; self.p = []
    def store(self, x, p=1.0): self.d[len(self.d)] = x; self.p.append(p); return len(self.d) - 1
    def sample(self, n, beta=0.4): i = random.choices(range(len(self.p)), self.p, k=n); return i, [self.d[j] for j in i], [beta] * n
    def update_priorities(self, idx, ps):
        for i, p in zip(idx, ps): self.p[i] = p
class PlainBuffer(dict):
    def __missing__(self, k): return ("missing", k)
    def sample(self): return self["x"]
random.seed(5)
m = ReplayMemory(); [m.push(i, i, i) for i in range(6)]; print(m.sample(2), len(m))
try: m.sample(50)
except ValueError as e: print(e)
try: m.push(1)
except TypeError as e: print(e)
d = Deq(maxlen=3); [d.push(i) for i in range(5)]; d.add(9); print(d, d.sample(2), d.sample(4, replace=True), Deq.push is collections.deque.append)
g = Gen(); g.add(1); g.add(2); s = g.sample(3); print(type(s).__name__, list(s), g)
p = Prioritized(); print([p.store(i, i + 1) for i in range(4)], p.sample(3)); p.update_priorities([0], [100]); print(p.sample(3, beta=1)[0])
print(PlainBuffer().sample(), random.random())
class TraceBuffer:
    def sample(self, n): raise IndexError("buffer is empty")
TraceBuffer().sample(3)
