# Checks: SIGINT from outside during time.sleep, uncaught: KeyboardInterrupt traceback without foreign frames, death by SIGINT, atexit runs.
import atexit, os, threading, time
atexit.register(print, "atexit ran")
def wait():
    time.sleep(20)
threading.Timer(0.2, os.write, (1, b"ready\n")).start()
wait()
