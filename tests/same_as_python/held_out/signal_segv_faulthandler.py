# Checks: a real segmentation fault with faulthandler enabled by the script (into a file): code -11 and "Fatal Python error" in the file.
import faulthandler, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
print("enabled before:", faulthandler.is_enabled(), flush=True)
if len(sys.argv) > 1:
    f = open("fault.txt", "w")
    faulthandler.enable(f, all_threads=False)
    faulthandler._sigsegv()
import subprocess, re
p = subprocess.run([sys.executable, __file__, "child"], capture_output=True, text=True)
print("child", p.returncode, repr(p.stdout), repr(p.stderr))
print(open("fault.txt").read().splitlines()[0])
import os
os.remove("fault.txt")
sys.stdout.flush()
import ctypes
ctypes.string_at(0)
