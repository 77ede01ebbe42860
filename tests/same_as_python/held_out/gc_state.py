# Checks: gc: enabled, default thresholds, no callbacks, no debug flags, nothing frozen at start; gc.disable stays; user callbacks run; freeze.
import gc, weakref, sys
print(gc.isenabled(), gc.get_threshold(), len(gc.callbacks), gc.get_debug(), gc.get_freeze_count(), gc.garbage)
class C: pass
def cyc(): c = C(); c.me = c; return weakref.ref(c)
gc.disable(); r = cyc(); [[] for _ in range(20000)]
print(r() is not None, gc.isenabled())
seen = []
gc.callbacks.append(lambda ph, info: seen.append((ph, info["generation"])))
gc.collect(1); gc.collect(); print(r() is None, seen)
gc.callbacks.clear(); gc.freeze(); print(gc.get_freeze_count() > 100); gc.unfreeze()
gc.set_threshold(5, 5, 5); print(gc.get_threshold())
class Env:
    def reset(self): return 0
    def step(self, a): return C()
e = Env(); [e.step(i) for i in range(1000)]
print(gc.get_threshold(), gc.isenabled())
