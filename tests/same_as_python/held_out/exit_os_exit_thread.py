# Checks: os._exit from a thread, while the main thread sleeps, ends at once with that code.
import os, threading, time
print("start", flush=True)
threading.Timer(0.1, os._exit, (23,)).start()
time.sleep(20)
print("WRONG")
