# Checks: non-daemon threads keep the process alive after an exception in main; they print after the traceback; exit code 1.
import threading, time, sys
def work():
    time.sleep(0.2)
    print("thread finished", threading.main_thread().is_alive(), file=sys.stderr)
threading.Thread(target=work).start()
raise RuntimeError("main failed")
