# Checks: torch.func (functional_call, vmap, grad), parametrize, checkpoint, DataParallel-free wrappers, swap of methods; results and errors.
import torch, warnings
from torch import nn
from torch.func import functional_call, vmap, grad
torch.manual_seed(0); m = nn.Linear(2, 1); pd = dict(m.named_parameters()); x = torch.ones(4, 2)
print(functional_call(m, pd, (x,)).shape, vmap(lambda v: functional_call(m, pd, (v,)))(x).shape, grad(lambda p: functional_call(m, p, (x,)).sum())(pd)["weight"].tolist())
nn.utils.parametrizations.weight_norm(m); print(type(m).__name__, m(x).shape, sorted(dict(m.named_parameters())))
from torch.utils.checkpoint import checkpoint
n = []
class C(nn.Module):
    def forward(self, t): n.append(1); return t.sin()
c = C(); t = torch.ones(2, requires_grad=True); checkpoint(c, t, use_reentrant=False).sum().backward(); print(len(n), t.grad.tolist())
s = nn.ModuleDict({"a": nn.Linear(1, 1)}); s.compile if False else None; print(list(s.keys()), s.a.training, s.eval().a.training, next(s.parameters()).device)
class W(nn.Module):
    def __init__(self): super().__init__(); self.inner = nn.Linear(2, 2); self.step = 0; self.register_buffer("count", torch.zeros(1))
    def forward(self, x): self.step += 1; self.count += 1; return self.inner(x)
    def reset(self): self.step = 0
w = W(); w(x); w(x); print(w.step, w.count.item(), list(w.state_dict())); w.reset(); print(w.step)
