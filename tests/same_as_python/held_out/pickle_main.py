# Checks: pickling of classes, functions, enums, namedtuples and nested classes of __main__: same bytes, loads back in this and in a fresh process.
import pickle, enum, collections, subprocess, sys, hashlib, dataclasses
Transition = collections.namedtuple("Transition", "s a r")
class Color(enum.Enum):
    RED = 1
@dataclasses.dataclass
class Cfg:
    lr: float = 0.1
class Env:
    class Inner:
        pass
    def __init__(self):
        self.t = 3
    def step(self, a):
        return a
    def reset(self):
        return 0
class ReplayBuffer:
    def __init__(self): self.d = [Transition(1, 2, 3)]
    def push(self, x): self.d.append(x)
    def sample(self, n): return self.d[:n]
def fn(x):
    return x
objs = [Transition(1, 2, 3), Color.RED, Cfg(), Env(), Env.Inner(), fn, Env.step, Env().step, ReplayBuffer(), print, len, Env, ReplayBuffer.push]
if len(sys.argv) > 1:
    for o in pickle.load(open("p.bin", "rb")):
        print("  child", getattr(o, "__qualname__", type(o).__qualname__), type(o).__module__)
    sys.exit()
for proto in range(2, 6):
    data = pickle.dumps(objs, proto)
    print(proto, len(data), hashlib.md5(data).hexdigest())
print(b"__main__" in data, data.count(b"hotloop"))
back = pickle.loads(data)
print(back[0], back[1], back[2], back[3].t, back[5] is fn, back[6] is Env.step, back[8].sample(1), back[9] is print, back[12] is ReplayBuffer.push)
pickle.dump(objs, open("p.bin", "wb"))
sys.stdout.flush()
subprocess.run([sys.executable, __file__, "child"], check=True)
import time
print(pickle.loads(pickle.dumps([time.sleep, time.perf_counter]))[0] is time.sleep, pickle.dumps(time.sleep))
