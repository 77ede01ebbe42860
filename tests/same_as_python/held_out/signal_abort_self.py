# Checks: os.abort / SIGABRT on itself gives -6, without any Python output.
import os, resource, signal
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
print("going", flush=True)
os.kill(os.getpid(), signal.SIGABRT)
print("WRONG")
