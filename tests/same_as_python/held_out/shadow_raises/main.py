# Checks: siblings that shadow names and raise or print when imported are only imported by the script itself, not by the recorder (at start or at exit).
import atexit
print("start")
atexit.register(print, "atexit")
try:
    import shutil
except RuntimeError as e:
    print("mine:", e)
