# Checks: optimiser subclasses (own step with and without closure, return values, hooks), LBFGS closure, lr schedulers' order warning only when deserved, param groups; warnings point to the script's lines.
import torch, inspect
class My(torch.optim.Optimizer):
    def __init__(self, p, lr=0.1): super().__init__(p, dict(lr=lr))
    @torch.no_grad()
    def step(self, closure=None):
        "my step"
        loss = None if closure is None else torch.enable_grad()(closure)()
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is not None: p.add_(p.grad, alpha=-g["lr"])
        return ("returned", loss)
class Wrapper:
    def __init__(self, o): self.o = o; self.n = 0
    def step(self, *a, **k): self.n += 1; return self.o.step(*a, **k)
    def __getattr__(self, n): return getattr(self.o, n)
w = torch.nn.Parameter(torch.ones(2)); o = My([w]); log = []
o.register_step_pre_hook(lambda *a: log.append("pre")); o.register_step_post_hook(lambda *a: log.append("post"))
(w ** 2).sum().backward(); print(o.step(), w.tolist(), log, My.step.__name__, My.step.__doc__, My.__dict__["step"].__qualname__)
print(o.step(lambda: (w * 3).sum())[1].item(), inspect.signature(My.step), hasattr(o.step, "__wrapped__"), Wrapper(o).step()[0])
l = torch.optim.LBFGS([w], max_iter=3); n = []
def closure(): l.zero_grad(); n.append(1); s = ((w - 3) ** 2).sum(); s.backward(); return s
print(l.step(closure).item(), len(n), w.tolist())
a = torch.optim.AdamW([w], 1.0); s = torch.optim.lr_scheduler.LinearLR(a); a.step(); s.step(); print(s.get_last_lr(), "no warning so far", a.step.__name__, hasattr(a.step, "_wrapped_by_lr_sched"))
b = torch.optim.SGD([w], 1.0); s2 = torch.optim.lr_scheduler.ExponentialLR(b, 0.5); s2.step(); b.step()
c = torch.optim.SGD([w], 1.0); s3 = torch.optim.lr_scheduler.ExponentialLR(c, 0.5); c.step = lambda: None; c.step(); s3.step()
for bad in (lambda: torch.optim.SGD([], 0.1), lambda: torch.optim.SGD([w], -1), lambda: l.step(), lambda: o.step(1, 2)):
    try: bad()
    except Exception as x: print(type(x).__name__, x)
def fail(): raise ArithmeticError("in closure")
a.step(fail)
