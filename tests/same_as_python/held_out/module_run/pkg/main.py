# Checks: -m pkg.main: __name__, __package__, __spec__, relative imports, sys.argv[0] as full path, sys.path[0] = cwd, module not also under its own name.
import sys, os
from . import helper
print(__name__, __package__, __spec__.name, __spec__.origin == __file__, type(__loader__).__name__, __spec__.parent, __spec__.has_location)
print(os.path.basename(sys.argv[0]), os.path.isabs(sys.argv[0]), sys.argv[1:], sys.path[0] == os.getcwd())
print("pkg.main" in sys.modules, "pkg" in sys.modules, helper.V, os.path.basename(__cached__ or ""))
print(sorted(k for k in globals() if k.startswith("__")))
raise ValueError("traceback through runpy as python -m shows it")
