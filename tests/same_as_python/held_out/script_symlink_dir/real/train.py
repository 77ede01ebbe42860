# Checks: script reached through a symlinked folder and '..': path is not resolved.
import sys, os, helper
print(os.path.basename(os.path.dirname(__file__)), os.path.basename(sys.path[0]), helper.V, sys.argv[0])
