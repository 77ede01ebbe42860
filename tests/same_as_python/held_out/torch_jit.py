# Checks: torch.jit.script and trace of user modules and functions (source needed, no foreign frames or attributes compiled), save and load, result equality.
import torch, io, warnings
warnings.simplefilter("ignore")
class M(torch.nn.Module):
    def __init__(self): super().__init__(); self.l = torch.nn.Linear(2, 2)
    def forward(self, x):
        if x.sum() > 0: x = x * 2
        return self.l(x)
@torch.jit.script
def f(x, n: int):
    for i in range(n): x = x + i
    return x
torch.manual_seed(0); m = M(); s = torch.jit.script(m); t = torch.jit.trace(m, torch.ones(1, 2)); x = torch.ones(1, 2)
print(torch.equal(s(x), m(x)), torch.equal(t(x), m(x)), f(torch.zeros(1), 4).item(), "aten::linear" in str(s.inlined_graph), s.code)
b = io.BytesIO(); torch.jit.save(s, b); b.seek(0); print(torch.equal(torch.jit.load(b)(x), m(x)))
try: torch.jit.script(lambda x: undefined_name(x))
except Exception as e: print(type(e).__name__)
print(torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())).code)
