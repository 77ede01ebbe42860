# Checks: torch.save / torch.load of whole modules of __main__ classes, deepcopy, pickle of optimisers and modules: sizes, contents without foreign names, equal results.
import torch, io, copy, pickle, zipfile
from torch import nn
class Policy(nn.Module):
    def __init__(self): super().__init__(); self.l = nn.Linear(3, 2)
    def forward(self, x): return self.l(x).tanh()
class MyOpt(torch.optim.SGD): pass
torch.manual_seed(1); p = Policy(); o = MyOpt(p.parameters(), 0.1, momentum=0.9); x = torch.ones(1, 3)
for _ in range(3): o.zero_grad(); p(x).sum().backward(); o.step()
b = io.BytesIO(); torch.save(p, b); data = b.getvalue(); pk = zipfile.ZipFile(io.BytesIO(data)); name = [n for n in pk.namelist() if n.endswith("data.pkl")][0]; raw = pk.read(name)
print(len(raw), b"hotloop" in data, b"__main__" in raw); b.seek(0); q = torch.load(b, weights_only=False); print(type(q).__name__, torch.equal(q(x), p(x)))
b = io.BytesIO(); torch.save(p.state_dict(), b); b.seek(0); print(list(torch.load(b, weights_only=True)))
d = copy.deepcopy(p); print(torch.equal(d(x), p(x)), d.l.weight is p.l.weight, sorted(vars(d)) == sorted(vars(p)))
o2 = pickle.loads(pickle.dumps(o)); print(type(o2).__name__, o2.param_groups[0]["momentum"], len(pickle.dumps(o.state_dict()["param_groups"])), b"hotloop" in pickle.dumps(o)); o3 = copy.deepcopy(o); o3.step()
print(len(pickle.dumps(nn.Linear.forward)), pickle.loads(pickle.dumps(torch.optim.SGD.step)).__qualname__, o.step.__self__ is o, o.step.__name__)
