# Checks: a timer signal handler calls env.step, buffer.push, queue.put_nowait and time.sleep(0) in the middle of the same calls of the main loop: no deadlock, all counted.
import signal, time, queue
class Env:
    n = 0
    def reset(self): return 0
    def step(self, a): self.n += 1; return a
class ReplayBuffer:
    def __init__(self): self.d = []
    def push(self, x): self.d.append(x)
    def sample(self, n): return self.d[:n]
env, buf, q = Env(), ReplayBuffer(), queue.SimpleQueue(); ticks = 0
def on(*a):
    global ticks
    ticks += 1; env.step(0); buf.push(0); q.put(1); time.sleep(0)
signal.signal(signal.SIGALRM, on); signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
i = 0; end = time.monotonic() + 10
while ticks < 50 and time.monotonic() < end:
    env.step(i); buf.push(i); buf.sample(1); i += 1
    if i % 1000 == 0: time.sleep(0)
signal.setitimer(signal.ITIMER_REAL, 0)
print(ticks >= 50, env.n >= i, len(buf.d) == i + ticks, q.qsize() == ticks)
