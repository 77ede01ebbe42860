# Checks: thread locals, contextvars in threads, copies of contexts, decimal contexts per thread; unaffected by hooks on env.step.
import threading, contextvars, decimal
var = contextvars.ContextVar("var", default="unset")
loc = threading.local()
class Env:
    def reset(self): return var.get()
    def step(self, a):
        var.set(f"set {a}")
        decimal.getcontext().prec = 3 + a
        return var.get()
env = Env()
out = []
def run(i):
    loc.x = i
    out.append((i, env.reset(), env.step(i), decimal.Decimal(1) / 7, loc.x))
for i in range(3):
    t = threading.Thread(target=run, args=(i,)); t.start(); t.join()
print(out, var.get(), decimal.getcontext().prec, hasattr(loc, "x"))
ctx = contextvars.copy_context()
print(ctx.run(env.step, 5), var.get(), ctx[var], len(contextvars.copy_context()), sorted(v.name for v in ctx))
with decimal.localcontext() as c:
    c.prec = 50; print(decimal.Decimal(2).sqrt())
print(env.step(1), var.get(), decimal.Decimal(1) / 3)
