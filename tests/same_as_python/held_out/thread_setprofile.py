# Checks: threading.setprofile / settrace, sys.setprofile / settrace of the script: None at start, they see exactly the calls of the script, and stay set.
import sys, threading
print(sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile())
seen = []
class Env:
    def reset(self): return 0
    def step(self, a):
        return a + helper(a)
def helper(a):
    return a
def tracer(fr, ev, arg):
    seen.append((ev, fr.f_code.co_name, fr.f_lineno)); return tracer
e = Env(); e.reset(); e.step(1)
sys.settrace(tracer); e.step(2); sys.settrace(None)
print(seen); seen.clear()
def prof(fr, ev, arg):
    seen.append((ev, fr.f_code.co_name))
sys.setprofile(prof); e.step(3); sys.setprofile(None)
print(seen); seen.clear()
threading.setprofile(prof)
t = threading.Thread(target=e.step, args=(1,)); t.start(); t.join()
threading.setprofile(None)
print([s for s in seen if s[1] in ("step", "helper")])
sys.setprofile(prof); print(sys.getprofile() is prof); sys.setprofile(None)
