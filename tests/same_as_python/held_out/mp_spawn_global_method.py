# Checks: multiprocessing.set_start_method("spawn") once is allowed (nobody has fixed the context before), twice raises; start method is not fixed at start.
import multiprocessing as mp
def f(x): return x + 1
if __name__ == "__main__":
    print(mp.get_start_method(allow_none=True))
    mp.set_start_method("spawn")
    try: mp.set_start_method("fork")
    except RuntimeError as e: print(e)
    with mp.Pool(1) as p: print(p.map(f, [1]))
    print(mp.get_all_start_methods())
