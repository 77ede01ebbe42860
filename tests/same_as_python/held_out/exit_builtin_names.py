# Checks: the builtins exit and quit exist (site), have their repr and exit(5) closes stdin and ends with 5.
import sys, atexit
print(repr(exit), repr(quit), type(copyright).__name__)
atexit.register(lambda: sys.stderr.write("stdin closed: %s\n" % sys.stdin.closed))
exit(5)
