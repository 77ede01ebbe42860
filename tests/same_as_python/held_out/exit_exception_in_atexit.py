# Checks: an exception in an atexit callback is printed, the other callbacks still run, the exit code stays 3.
import atexit, sys
atexit.register(print, "first registered, last run")
class Boom:
    def __call__(self):
        raise RuntimeError("in atexit")
    def __repr__(self):
        return "<boom>"
atexit.register(Boom())
atexit.register(print, "last registered, first run")
sys.exit(3)
