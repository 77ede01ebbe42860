# Checks: warnings raised by torch from the script's lines (non-scalar copy construct, lr_scheduler, non-full backward hooks) carry file and line of the script; PYTHONWARNINGS=always.
import torch
def build(t):
    return torch.tensor(t)
build(torch.ones(2))
x = torch.ones(2, requires_grad=True); y = x * 2
y.grad
m = torch.nn.Softmax(); m(torch.ones(2, 2))
torch.nn.functional.mse_loss(torch.ones(2), torch.ones(2, 1))
loss = torch.nn.MSELoss(); loss(torch.ones(3), torch.ones(3, 1))
