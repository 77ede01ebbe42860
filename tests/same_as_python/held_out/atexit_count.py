# Checks (strict): number of registered atexit callbacks at start, and atexit._clear does not break anything but the script's own callbacks.
import atexit, sys
print(atexit._ncallbacks())
atexit.register(print, "WRONG: cleared")
atexit._clear()
print(atexit._ncallbacks())
sys.exit(2)
