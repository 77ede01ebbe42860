# Checks: siblings named torch, numpy, gymnasium, gym, psutil, rich (own toy modules / packages) are used and the hooks for the real ones do not break on them.
import sys
import torch, numpy, gymnasium, gym, psutil, rich
print(torch.MINE, numpy.MINE, gymnasium.MINE, gym.MINE, psutil.MINE, rich.MINE)
import torch.optim
print(torch.optim.MINE, hasattr(torch, "Tensor"))
from gymnasium import Env
class E(Env):
    def step(self, a):
        return super().step(a) + 1
print(E().step(1))
opt = torch.optim.Optimizer()
print(opt.step(3))
