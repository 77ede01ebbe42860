# Checks: fork from a non-main thread; the child's only thread ends by sys.exit, exception or os._exit.
import os, sys, threading
res = []
def run(f):
    pid = os.fork()
    if pid == 0: f()
    res.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
for f in (lambda: os._exit(3), lambda: (os.write(1, threading.current_thread().name.encode() + b"\n"), os._exit(4))):
    t = threading.Thread(target=run, args=(f,), name="forker"); t.start(); t.join()
print(res)
