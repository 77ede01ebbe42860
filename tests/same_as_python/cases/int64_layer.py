# Layers sized by NumPy integers, as CleanRL builds them; recorded to the end.
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(np.array((2, 3)).prod(), np.int64(4)), nn.Tanh(), nn.Linear(4, np.int32(2)))
optimiser = torch.optim.Adam(net.parameters(), lr=np.float32(1e-3))
for _ in range(30):
    loss = net(torch.ones(5, 6)).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
print(f"{loss.item():.6f}")
