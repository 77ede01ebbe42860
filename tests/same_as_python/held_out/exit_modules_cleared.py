# Checks: sys.modules.clear(), sys.path = [], sys.meta_path = [] before the end: exit code 4, no complaints.
import sys
class Env:
    def reset(self): return 0
    def step(self, a): return a
Env().step(1)
print("clearing", flush=True)
sys.path = []; sys.meta_path = []; sys.path_hooks = []
ex = sys.exit; mods = dict(sys.modules); sys.modules.clear()
ex(4)
