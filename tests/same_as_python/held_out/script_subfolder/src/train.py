# Checks: script below the cwd: sys.path[0] is the script's folder (not the cwd); data file relative to cwd; sibling wins over a same-named module in the cwd.
import sys, os, helper
print(os.path.basename(sys.path[0]), helper.WHERE, open("data.txt").read().strip(), sys.argv[0], "" in sys.path, os.getcwd() in sys.path)
