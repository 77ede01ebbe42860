# A folder with __main__.py.
import sys

import part

print(__name__, part.NAME, sys.argv, __package__)
