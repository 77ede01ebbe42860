# Checks: -m solo (top-level module): __package__ is "", spawn children re-import it as __mp_main__ by name.
import multiprocessing as mp, sys
def work(x):
    return (x * x, __name__, sys.modules["__main__"].__name__)
if __name__ == "__main__":
    print(repr(__package__), __spec__.name)
    with mp.get_context("spawn").Pool(1) as p:
        print(p.map(work, [2, 3]))
