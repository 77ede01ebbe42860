# Checks: the script may change sys.argv (as absl, hydra do) and import things afterwards; nothing reads it later.
import sys, atexit
sys.argv[:] = ["changed", "x"]
import gymnasium
atexit.register(lambda: print(sys.argv))
del sys.argv
sys.argv = ["again"]
