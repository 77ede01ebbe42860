# Checks: exceptions raised by a timer signal at arbitrary points inside hooked calls always reach the script's handler; afterwards everything still works.
import signal, time, queue
class Tick(Exception): pass
class Env:
    def reset(self): return 0
    def step(self, a): return a, 1.0, False, {}
armed = False; ticks = 0; raised = 0
def on(*a):
    global armed, raised
    if armed: armed = False; raised += 1; raise Tick
signal.signal(signal.SIGALRM, on); signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
env = Env(); q = queue.Queue(); end = time.monotonic() + 10
def storm():
    global armed
    armed = True
    while True: env.step(1); time.sleep(0)
while ticks < 60 and time.monotonic() < end:
    try:
        storm()
    except Tick as e: ticks += 1
signal.setitimer(signal.ITIMER_REAL, 0)
print(ticks, raised == ticks, env.step(3), env.reset()); q.put(1); print(q.get())
