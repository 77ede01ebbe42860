# Checks: KeyboardInterrupt raised by hand and uncaught: traceback, and the process dies of SIGINT (-2).
import atexit
atexit.register(print, "atexit ran")
def loop():
    raise KeyboardInterrupt("by hand")
loop()
