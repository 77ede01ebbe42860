# Checks: the usual "timeout by SIGALRM" idiom raises TimeoutError out of time.sleep and of Event.wait, traceback inside the script only.
import signal, threading, time, traceback
def on(num, frame):
    raise TimeoutError("too slow")
signal.signal(signal.SIGALRM, on)
for what in (lambda: time.sleep(20), lambda: threading.Event().wait(20)):
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        what()
    except TimeoutError as e:
        print("timeout:", e)
signal.setitimer(signal.ITIMER_REAL, 0.1)
time.sleep(20)
