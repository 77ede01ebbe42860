# Checks: signal.alarm / setitimer(ITIMER_REAL) without handler kills with SIGALRM (-14).
import signal, time
print("start", flush=True)
signal.setitimer(signal.ITIMER_REAL, 0.1)
time.sleep(20)
