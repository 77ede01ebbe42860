# Checks: os._exit(9) skips atexit, finally and unflushed buffers.
import os, sys, atexit
atexit.register(print, "WRONG: atexit")
os.write(1, b"written\n")
sys.stdout.write("lost in the buffer")
try:
    os._exit(9)
finally:
    print("WRONG: finally")
