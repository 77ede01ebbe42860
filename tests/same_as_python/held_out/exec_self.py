# Checks: os.execv of itself three times with a counter: output of each round, same pid, final exit code; atexit does not run in between.
import os, sys, atexit
n = int(sys.argv[1]) if len(sys.argv) > 1 else 0
pid = os.environ.setdefault("START_PID", str(os.getpid()))
atexit.register(print, "atexit in round", n)
print("round", n, pid == str(os.getpid()), flush=True)
if n < 3:
    os.execv(sys.executable, [sys.executable, __file__, str(n + 1)])
sys.exit(40 + n)
