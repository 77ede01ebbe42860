# Checks: repeated setitimer timers (REAL, VIRTUAL, PROF) of the script fire in its own handlers and can be cancelled.
import signal, time
seen = {}
def on(num, frame):
    seen[num] = seen.get(num, 0) + 1
for s, w in ((signal.SIGALRM, signal.ITIMER_REAL), (signal.SIGVTALRM, signal.ITIMER_VIRTUAL), (signal.SIGPROF, signal.ITIMER_PROF)):
    print(signal.signal(s, on) is signal.SIG_DFL, signal.setitimer(w, 0.02, 0.02))
end = time.monotonic() + 10
while time.monotonic() < end and not (len(seen) == 3 and min(seen.values()) >= 3):
    pass
for w in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
    signal.setitimer(w, 0)
print(sorted(seen), min(seen.values()) >= 3)
