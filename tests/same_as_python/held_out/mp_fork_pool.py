# Checks: fork Pool: map, imap_unordered, initializer, maxtasksperchild, exceptions with remote traceback, terminate.
import multiprocessing as mp, sys
def init(x):
    global base; base = x
def f(x):
    if x < 0: raise KeyError(x)
    return base + x
class Env:
    def reset(self): return 0
    def step(self, a): return a * 2, 1.0, False, {}
if __name__ == "__main__":
    with mp.get_context("fork").Pool(2, init, (100,), maxtasksperchild=2) as p:
        print(p.map(f, range(6), chunksize=1), sorted(p.imap_unordered(f, range(4))), p.apply_async(f, (1,)).get(5))
        print(p.map(Env().step, [1, 2]))
        try:
            p.map(f, [1, -1])
        except KeyError as e:
            print(repr(e), str(e.__cause__).count("File"))
        p.apply(f, (-5,))
