# Checks: symlinked script: sys.path[0] is the folder of the target, __file__ and argv[0] the link.
import sys, os, helper
print(os.path.basename(__file__), os.path.basename(os.path.dirname(__file__)), os.path.basename(sys.path[0]), helper.V, sys.argv[0], os.path.basename(os.path.realpath(__file__)))
{}['x']
