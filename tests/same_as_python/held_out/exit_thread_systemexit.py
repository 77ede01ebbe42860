# Checks: SystemExit raised in a thread is silent and does not change the exit code of the process.
import threading, sys
t = threading.Thread(target=lambda: sys.exit("ignored"))
t.start(); t.join()
print("main goes on")
sys.exit(6)
