# Checks: double fork with setsid and closed descriptors (daemonize): the first process ends at once with 0, the daemon does its work.
import os, sys, time
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0: os._exit(0)
    os.chdir("/")
    for fd in (0, 1, 2): os.close(fd)
    os.close(r)
    os.open("/dev/null", os.O_RDWR); os.dup2(0, 1); os.dup2(0, 2)
    print("lost")
    os.write(w, b"daemon did its work\n")
    sys.exit(3)
os.close(w)
os.wait()
sys.stdout.write(os.fdopen(r).read())
