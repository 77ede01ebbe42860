# Checks: SIGHUP without handler kills the process (-1).
import time
print("ready", flush=True)
time.sleep(20)
