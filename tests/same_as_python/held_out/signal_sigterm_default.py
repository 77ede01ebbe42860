# Checks: SIGTERM without handler kills the process at once (-15): no atexit, no flush.
import atexit, signal, sys, time
atexit.register(print, "WRONG: atexit")
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
print("ready", flush=True)
sys.stdout.write("lost")
time.sleep(20)
