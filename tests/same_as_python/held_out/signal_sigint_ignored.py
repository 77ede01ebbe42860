# Checks: SIGINT set to SIG_IGN by the script is really ignored, the run goes on to its end.
import os, signal, threading, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
threading.Timer(0.1, os.write, (1, b"ready\n")).start()
time.sleep(0.5)
print("survived")
