# Checks: a child still running at the end (short) does not delay the parent's end, and prints afterwards through the inherited stdout.
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.4); print('child after parent')"])
print("parent ends", flush=True)
import warnings; warnings.simplefilter("ignore")
