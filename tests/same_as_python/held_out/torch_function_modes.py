# Checks: TorchFunctionMode and TorchDispatchMode of the user count exactly the operations of the script; tensor subclass with __torch_function__; hooks call nothing on tensors (.item, .device, .shape ...).
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
class F(TorchFunctionMode):
    def __torch_function__(self, f, t, a=(), k=None): ops.append(getattr(f, "__name__", str(f))); return f(*a, **(k or {}))
class D(TorchDispatchMode):
    def __torch_dispatch__(self, f, t, a=(), k=None): disp.append(str(f)); return f(*a, **(k or {}))
class T(torch.Tensor):
    @classmethod
    def __torch_function__(cls, f, t, a=(), k=None): sub.append(f.__name__); return super().__torch_function__(f, t, a, k or {})
ops, disp, sub = [], [], []
net = torch.nn.Linear(2, 1); opt = torch.optim.SGD(net.parameters(), 0.1)
class Env:
    def reset(self): return torch.zeros(2)
    def step(self, a): return torch.ones(2), a, False, {}
class ReplayBuffer:
    def push(self, *x): self.x = x
    def sample(self, n): return self.x
e, b = Env(), ReplayBuffer()
with F():
    o = e.reset(); a = net(o); o2, r, d, i = e.step(a); b.push(o, a, r); b.sample(1); l = r.sum(); opt.zero_grad(); l.backward(); opt.step()
print(ops)
with D(): l = net(o).sum(); l.backward()
print(disp)
x = torch.ones(2).as_subclass(T); e.step(x); b.push(x); y = x + 1; print(sub, type(y).__name__, type(net(x)).__name__)
