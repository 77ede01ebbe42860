# Checks: the script uses torch.profiler / record_function / autograd profiler itself: works, and sees only its own operations and names.
import os, torch
from torch.autograd import profiler
net = torch.nn.Linear(2, 1); opt = torch.optim.SGD(net.parameters(), 0.1)
class Env:
    def reset(self): return torch.zeros(2)
    def step(self, a): return torch.ones(2), 1.0, False, {}
e = Env()
print(torch.autograd._profiler_enabled() if hasattr(torch.autograd, "_profiler_enabled") else None)
err = os.dup(2); os.dup2(os.open("/dev/null", os.O_WRONLY), 2)  # the profiler prints times and pids
with profiler.profile(use_kineto=False) as p:
    with profiler.record_function("mine"):
        o = e.reset(); e.step(0); net(o).sum().backward(); opt.step(); opt.zero_grad()
os.dup2(err, 2); names = {}
for ev in p.function_events: names[ev.name] = names.get(ev.name, 0) + 1
print(sorted(names.items()))
