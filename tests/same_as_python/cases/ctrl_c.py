# Ctrl-C that nobody handles. The signal is asked for when the main thread already sleeps.
import threading
import time

threading.Timer(0.5, print, ("ready",), {"flush": True}).start()
time.sleep(30)
