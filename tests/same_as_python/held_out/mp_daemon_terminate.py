# Checks: daemonic children are terminated at exit, terminate/kill give -15/-9, join with timeout, is_alive, sentinel, close.
import multiprocessing as mp, time, sys
from multiprocessing.connection import wait
def forever(): time.sleep(60)
ctx = mp.get_context("fork")
ps = [ctx.Process(target=forever, daemon=True) for _ in range(3)]
for p in ps: p.start()
ps[0].join(0.05); print(ps[0].is_alive(), ps[0].exitcode)
ps[0].terminate(); print(wait([ps[0].sentinel], 5) == [ps[0].sentinel]); ps[0].join(); print(ps[0].exitcode)
ps[1].kill(); ps[1].join(); print(ps[1].exitcode); ps[1].close()
print(len(mp.active_children()))
sys.exit(3)
