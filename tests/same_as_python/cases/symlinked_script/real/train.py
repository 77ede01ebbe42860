# A symlinked script finds the siblings of the file it points to.
import os
import sys

import sibling

print(sibling.NAME, os.path.relpath(sys.path[0]), os.path.relpath(__file__), sys.argv)
