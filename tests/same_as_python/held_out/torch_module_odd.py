# Checks: nn.Module subclasses with odd forwards: returns None, kwargs only, generator, raises; __call__ overridden; forward replaced; user hooks; dir and vars of modules; identity of nn.Module.__call__.
import torch, inspect
from torch import nn
class Nothing(nn.Module):
    def forward(self): return None
class Kw(nn.Module):
    def forward(self, *, x, y=2): return x * y
class Gen(nn.Module):
    def forward(self, n): yield from range(n)
class Called(nn.Module):
    def __call__(self, *a): return ("own call", a)
class Slots(nn.Module):
    def __getattr__(self, n):
        seen.append(n); return super().__getattr__(n)
    def forward(self, x): return x
seen = []
print(Nothing()(), Kw()(x=torch.tensor(3)).item(), list(Gen()(3)), Called()(1), Slots()(4), seen)
m = nn.Linear(2, 2); nn.init.ones_(m.weight); nn.init.zeros_(m.bias); log = []
h1 = m.register_forward_pre_hook(lambda mod, i: log.append("pre")); h2 = m.register_forward_hook(lambda mod, i, o: (log.append("post"), o * 2)[1]); h3 = m.register_full_backward_hook(lambda mod, gi, go: log.append("back"))
y = m(torch.ones(1, 2, requires_grad=True)); y.sum().backward(); print(y.tolist(), log, len(m._forward_hooks), len(m._forward_pre_hooks)); h1.remove(); h2.remove(); h3.remove()
print(len(torch.nn.modules.module._global_forward_hooks), len(torch.nn.modules.module._global_forward_pre_hooks), len(torch.nn.modules.module._global_backward_hooks), nn.Module.__call__.__qualname__, nn.Module.__call__.__module__, nn.Module._call_impl.__qualname__, nn.Linear.forward.__qualname__, inspect.signature(nn.Linear.forward), inspect.isfunction(nn.Linear.forward))
m.forward = lambda x: "replaced"; print(m(torch.ones(1, 2)), sorted(k for k in vars(m))); del m.forward
print(m, sorted(set(dir(m)) - set(dir(nn.Module)))[:20], [n for n, _ in m.named_modules()], torch.optim.SGD.step.__qualname__, torch.Tensor.backward.__qualname__, torch.Tensor.backward.__module__, inspect.signature(torch.Tensor.backward))
class Bad(nn.Module):
    def forward(self, x):
        return x @ torch.ones(3, 3)
class Outer(nn.Module):
    def __init__(self): super().__init__(); self.bad = Bad()
    def forward(self, x): return self.bad(x)
Outer()(torch.ones(2, 2))
