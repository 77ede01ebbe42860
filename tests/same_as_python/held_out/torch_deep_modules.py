# Checks: Sequential nested 230 deep (3 Python frames per level) runs under the default recursion limit, as in Python; and a recursive module.
import torch
from torch import nn
m = nn.Identity()
for _ in range(230): m = nn.Sequential(m)
print(m(torch.ones(1)))
class Rec(nn.Module):
    def forward(self, n): return n if n == 0 else self(n - 1) + 1
print(Rec()(200))
