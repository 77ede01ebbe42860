# Checks: pdb run by script commands through stdin (bdb uses settrace), with breakpoint() disabled and enabled by PYTHONBREAKPOINT=0; sys.breakpointhook default.
import pdb, sys, io
print(sys.breakpointhook is sys.__breakpointhook__); breakpoint()
class Env:
    def reset(self): return 0
    def step(self, a):
        b = a * 2
        return b
out = io.StringIO()
d = pdb.Pdb(stdin=io.StringIO("step\nstep\nnext\nnext\np b\ncontinue\n"), stdout=out, nosigint=True, readrc=False); d.use_rawinput = False
print(d.runcall(Env().step, 4))
print([l for l in out.getvalue().splitlines() if "File" not in l and "/" not in l])
