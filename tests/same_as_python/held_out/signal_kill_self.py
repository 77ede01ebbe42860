# Checks: SIGKILL on itself gives -9.
import os, signal
print("going", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
