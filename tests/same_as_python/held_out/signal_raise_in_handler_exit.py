# Checks: exception raised in a signal handler and left uncaught: traceback shows the interrupted line and the handler, code 1.
import os, signal
def on(num, frame):
    raise RuntimeError("from handler")
signal.signal(signal.SIGUSR2, on)
def work():
    os.kill(os.getpid(), signal.SIGUSR2)
    for i in range(10**9):
        pass
try:
    work()
except RuntimeError as e:
    print("caught", e)
signal.raise_signal(signal.SIGUSR2)
