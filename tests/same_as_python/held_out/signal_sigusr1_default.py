# Checks: SIGUSR1 without handler kills the process (-10); SIGUSR2 had no handler either.
import time, signal
print(signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGUSR2))
print("ready", flush=True)
time.sleep(20)
