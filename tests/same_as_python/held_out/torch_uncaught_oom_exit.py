# Checks: RuntimeError out of loss.backward (uncaught) prints Python's frames only, while a non-daemon thread holds tensors and atexit saves a checkpoint.
import torch, atexit, threading, time
net = torch.nn.Linear(2, 1)
atexit.register(lambda: (torch.save(net.state_dict(), "ckpt.pt"), print("saved")))
t = threading.Thread(target=time.sleep, args=(0.1,)); t.start()
def update():
    loss = net(torch.ones(1, 2)).sum()
    loss.backward()
    loss.backward()
update()
