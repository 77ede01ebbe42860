# The end of a program: os.kill(os.getpid(), signal.SIGHUP)
import os
import signal

print("working", flush=True)
os.kill(os.getpid(), signal.SIGHUP)
