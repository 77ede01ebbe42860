# Checks: SIGINT interrupts a busy loop in the main thread while other threads run; the script then ends normally.
import os, threading
stop = threading.Event()
t = threading.Thread(target=stop.wait)
t.start()
threading.Timer(0.2, os.write, (1, b"ready\n")).start()
def busy():
    while True:
        pass
try:
    busy()
except KeyboardInterrupt:
    print("interrupted in", threading.current_thread().name)
stop.set(); t.join()
