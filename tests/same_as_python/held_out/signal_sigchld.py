# Checks: the script's SIGCHLD handler runs exactly once per own child, waitpid(-1) sees no foreign children.
import os, signal, time
seen = []
signal.signal(signal.SIGCHLD, lambda n, f: seen.append(n))
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no children at start")
pid = os.fork()
if pid == 0:
    os._exit(3)
got, status = os.waitpid(-1, 0)
print(got == pid, os.waitstatus_to_exitcode(status))
time.sleep(0.05)
print(len(seen))
try:
    os.wait()
except ChildProcessError:
    print("no children at end")
