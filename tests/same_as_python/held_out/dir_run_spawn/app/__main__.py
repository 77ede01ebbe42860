# Checks: a directory run with spawn children: __main__.py is not re-run in the child as main, sibling functions work.
import multiprocessing as mp, job
if __name__ == "__main__":
    with mp.get_context("spawn").Pool(1) as p: print(p.map(job.f, [1, 2]))
