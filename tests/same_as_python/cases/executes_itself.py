# A script that replaces itself with another run of itself.
import os
import sys

print(sys.argv[1:], flush=True)
if len(sys.argv) < 3:
    os.execv(sys.executable, [sys.executable, *sys.argv, "again"])
sys.exit(8)
