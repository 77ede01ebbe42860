# Checks: binary data through sys.stdout.buffer, raw and os.write mixed with text, with explicit flush order; NULs and invalid UTF-8.
import sys, os
print("text 1"); sys.stdout.flush()
sys.stdout.buffer.write(bytes(range(256))); sys.stdout.buffer.flush()
os.write(1, b"\xff\xfe raw\n")
sys.stdout.buffer.raw.write(b"raw layer\n")
print("buffered before"); sys.stdout.buffer.write(b"but this first\n"); sys.stdout.buffer.flush()
sys.stdout.writelines(["a\n", "b\n"]); open(1, "wb", closefd=False).write(b"reopened fd 1\n")
