# Checks: ModuleNotFoundError and ImportError with name attributes and suggestion texts.
import sys
try:
    import torchh
except ModuleNotFoundError as e:
    print(e, e.name, e.path)
try:
    from queue import Qeue
except ImportError as e:
    print(str(e).split("(")[0], e.name)
try:
    import os.nothing
except ImportError as e:
    print(e, e.name)
prnt = 1
pritn("x")
