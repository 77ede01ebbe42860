# Checks: cProfile.run of a training loop in the script works (no "another profiling tool is active") and counts the calls right.
import cProfile, pstats, io
class Env:
    def reset(self): return 0
    def step(self, a): return a
def train(n):
    e = Env(); e.reset()
    for i in range(n): e.step(i)
p = cProfile.Profile(); p.enable(); train(50); p.disable()
for (f, line, name), v in sorted(pstats.Stats(p).stats.items()):
    if f == __file__:
        print(name, v[0])
print(sum(v[0] for k, v in pstats.Stats(p).stats.items()))
