# Checks: all signal dispositions, timers and the wakeup fd are as Python leaves them at start.
import signal
for s in sorted(signal.valid_signals()):
    h = signal.getsignal(s)
    if h != signal.SIG_DFL:
        print(s, getattr(h, "__name__", h))
print([signal.getitimer(t) for t in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)])
print(signal.set_wakeup_fd(-1), signal.default_int_handler is signal.getsignal(signal.SIGINT))
