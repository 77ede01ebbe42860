# What Python says of itself.
import sys

print(sys.argv, sys.flags, len(sys.orig_argv), sys.orig_argv[1:])
print(sorted(name for name in vars() if name.startswith("__")), __spec__, __name__)
print(type(__loader__).__name__, type(__builtins__).__name__, sys.excepthook is sys.__excepthook__)
print(sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace(), sys.getprofile(), sys.displayhook)
