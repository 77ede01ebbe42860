# Checks: sys.exit inside an atexit callback: how it is reported and that the exit code is Python's.
import atexit, sys
class Leave:
    def __call__(self):
        sys.exit(77)
    def __repr__(self):
        return "<leave>"
atexit.register(print, "still run")
atexit.register(Leave())
print("end of main")
