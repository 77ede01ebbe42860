# Checks: SIGQUIT without handler kills the process (-3).
import time
print("ready", flush=True)
time.sleep(20)
