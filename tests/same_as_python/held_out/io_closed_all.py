# Checks: started with stdin, stdout and stderr closed; the script works only with files; code 6.
import sys, os, logging, warnings
fds = [os.open(f"f{i}.txt", os.O_RDWR | os.O_CREAT) for i in range(3)]
os.write(fds[0], repr((fds, sys.stdin, sys.stdout, sys.stderr)).encode())
print("x"); logging.warning("y"); warnings.warn("z")
os.write(fds[1], b"one"); os.write(fds[2], b"two")
sys.exit(6)
