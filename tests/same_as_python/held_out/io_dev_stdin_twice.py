# Checks: /dev/stdin opened twice, os.read(0), and a child process that inherits the rest of stdin.
import os, subprocess, sys
print(os.read(0, 5))
with open("/dev/stdin", "rb", buffering=0) as f: print(f.read(4))
fd = os.open("/dev/stdin", os.O_RDONLY); print(os.read(fd, 3)); os.close(fd)
sys.stdout.flush()
subprocess.run([sys.executable, "-c", "import sys; print('child got', repr(sys.stdin.read()))"])
print(repr(sys.stdin.read()))
