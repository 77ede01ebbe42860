# Checks: os.fork: child that ends by os._exit, sys.exit, exception, or runs off the end (atexit then runs in both), unflushed buffers, exit codes.
import os, sys, atexit
atexit.register(lambda: os.write(1, b"atexit\n"))
def run(f):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        f()
    else:
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
run(lambda: os._exit(4))
run(lambda: sys.exit(5))
def boom(): raise ValueError("in forked child")
run(boom)
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(r); os.write(w, b"from child"); print("child runs off the end")
else:
    os.close(w); os.waitpid(pid, 0); print(os.read(r, 100)); print("parent end")
