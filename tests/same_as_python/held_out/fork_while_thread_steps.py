# Checks: fork while another thread is in the middle of env.step / print / queue: the children call the same functions and end (no lock inherited in locked state).
import os, threading, queue, time, io
class Env:
    def reset(self): return 0
    def step(self, a): return a
env = Env(); q = queue.SimpleQueue(); stop = False; sink = io.StringIO()
def work():
    while not stop: env.step(1); q.put(1); q.get(); print("x", file=sink); time.sleep(0)
t = threading.Thread(target=work); t.start(); codes = []
for i in range(15):
    pid = os.fork()
    if pid == 0:
        import signal; signal.alarm(5)
        e2 = Env(); e2.reset(); [e2.step(k) for k in range(20)]; q.put(1); print("y", file=io.StringIO()); time.sleep(0); os._exit(40 + i % 3)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
stop = True; t.join(); print(codes)
