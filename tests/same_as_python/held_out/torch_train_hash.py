# Checks: 20 Adam updates of a small network (seeded draws, dropout, clipping, target network) give bit-equal weights, losses and random states.
import torch, hashlib
torch.set_num_threads(1)
print(torch.is_grad_enabled(), torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled(), torch.is_anomaly_enabled(), torch.get_num_interop_threads() > 0)
def h(ts): return hashlib.md5(b"".join(t.detach().numpy().tobytes() for t in ts)).hexdigest()
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 2))
tgt = torch.nn.Linear(4, 2)
opt = torch.optim.Adam(net.parameters(), 1e-2); sch = torch.optim.lr_scheduler.StepLR(opt, 5)
for i in range(20):
    x = torch.randn(8, 4); loss = torch.nn.functional.mse_loss(net(x), tgt(x).detach())
    opt.zero_grad(); loss.backward(); torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0); opt.step(); sch.step()
    if i % 5 == 0: print(i, loss.item().hex(), opt.param_groups[0]["lr"])
print(h(net.parameters()), h(net.state_dict().values()), hashlib.md5(torch.get_rng_state().numpy().tobytes()).hexdigest(), torch.rand(1).item().hex())
print(sorted(opt.state_dict()["param_groups"][0]), sorted(opt.state[net[0].weight]), sorted(k for k in vars(opt)), list(net.state_dict()))
