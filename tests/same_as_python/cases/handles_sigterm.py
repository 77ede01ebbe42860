# The script's own signal handlers work, and it ends by them.
import signal
import sys
import threading
import time


def leave(number, frame):
    print("handled", number, flush=True)
    sys.exit(41)


signal.signal(signal.SIGTERM, leave)
threading.Timer(0.5, print, ("ready",), {"flush": True}).start()
time.sleep(30)
