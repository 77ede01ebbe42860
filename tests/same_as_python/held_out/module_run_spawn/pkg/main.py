# Checks: -m pkg.main with spawn and forkserver children: main is re-imported by name as __mp_main__, relative imports work there.
import multiprocessing as mp, sys
from .job import square
def work(x): return square(x), __name__, __package__, __spec__.name
if __name__ == "__main__":
    for m in ("spawn", "forkserver"):
        with mp.get_context(m).Pool(1) as p: print(m, p.map(work, [3]))
    p = mp.get_context("spawn").Process(target=sys.exit, args=(19,)); p.start(); p.join(); print(p.exitcode)
    sys.exit(2)
