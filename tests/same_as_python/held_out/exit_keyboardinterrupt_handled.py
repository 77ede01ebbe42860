# Checks: SIGINT from outside arrives as KeyboardInterrupt in the main thread's sleep, is caught, cleanup runs and code is 130.
import os, sys, threading, time
try:
    threading.Timer(0.2, os.write, (1, b"ready\n")).start()
    while True:
        time.sleep(20)
except KeyboardInterrupt as e:
    print("interrupted", repr(e), e.__traceback__.tb_next is None)
    sys.exit(130)
