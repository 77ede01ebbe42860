# Checks: the classic mistake (spawn without "if __name__" guard): the child's RuntimeError text and the parent's exit code.
import multiprocessing as mp
def f(): pass
p = mp.get_context("spawn").Process(target=f)
p.start(); p.join(); print("exitcode", p.exitcode)
