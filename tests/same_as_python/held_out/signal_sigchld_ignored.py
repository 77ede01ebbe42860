# Checks: with SIGCHLD set to SIG_IGN children are reaped by the system; the tool does not rely on waiting for them.
import os, signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
p = subprocess.Popen([sys.executable, "-c", "print('child')"], stdout=subprocess.PIPE)
print(p.communicate()[0])
print(p.returncode)
pid = os.fork()
if pid == 0:
    os._exit(1)
try:
    os.waitpid(pid, 0)
except ChildProcessError:
    print("reaped by system")
