# Checks: running a directory with __main__.py: sys.path[0] is the directory, sibling import works, __package__ is "".
import sys, os, sib
print(__name__, repr(__package__), __spec__.name, os.path.basename(sys.argv[0]), sys.argv[1:], os.path.basename(sys.path[0]), sib.V, type(__loader__).__name__)
print(sys.path[0], sys.argv[0])
{}["error in directory main"]
