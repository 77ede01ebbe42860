# Checks: a SIGTERM handler that only sets a flag; the sleep is resumed (PEP 475), the loop then ends normally with code 0.
import os, signal, threading, time
stop = False
def on(num, frame):
    global stop
    stop = True
signal.signal(signal.SIGTERM, on)
threading.Timer(0.2, os.write, (1, b"ready\n")).start()
t = time.monotonic()
time.sleep(0.8)
print("slept full", time.monotonic() - t >= 0.8, "flag", stop)
