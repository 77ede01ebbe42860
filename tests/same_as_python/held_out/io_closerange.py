# Checks: os.closerange(3, 4096) (old daemons do it) in the middle of the run; then new files get these numbers, nothing else writes into them until the end.
import os, sys, time, threading
os.closerange(3, 4096)
fds = [os.open(f"f{i}.bin", os.O_RDWR | os.O_CREAT) for i in range(8)]
for fd in fds: os.write(fd, b"mine")
class Env:
    def reset(self): return 0
    def step(self, a): time.sleep(0.001); return a
e = Env(); e.reset()
for i in range(150): e.step(i); i % 50 or print("step", i)
t = threading.Thread(target=e.step, args=(1,)); t.start(); t.join()
print([os.pread(fd, 100, 0) for fd in fds], [os.fstat(fd).st_size for fd in fds])
import gymnasium
sys.exit(5)
