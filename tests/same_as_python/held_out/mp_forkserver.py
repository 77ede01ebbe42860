# Checks: multiprocessing forkserver: with preload of __main__, Process and Pool, exit codes.
import multiprocessing as mp, sys
def f(x):
    return x * 3, __name__
def leave(): sys.exit(13)
if __name__ == "__main__":
    ctx = mp.get_context("forkserver")
    ctx.set_forkserver_preload(["__main__", "colorsys"])
    with ctx.Pool(2) as p: print(p.map(f, range(3)))
    p = ctx.Process(target=leave); p.start(); p.join(); print(p.exitcode)
