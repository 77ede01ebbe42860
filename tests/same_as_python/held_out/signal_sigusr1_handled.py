# Checks: SIGUSR1 handler that raises an own exception out of a blocking queue.get; the exception is caught by the script.
import os, queue, signal, threading
class Wake(Exception):
    pass
def on(num, frame):
    raise Wake("usr1")
signal.signal(signal.SIGUSR1, on)
q = queue.Queue()
try:
    threading.Timer(0.2, os.write, (1, b"ready\n")).start()
    q.get()
except Wake as e:
    print("woken", e)
print(q.qsize(), q.empty())
