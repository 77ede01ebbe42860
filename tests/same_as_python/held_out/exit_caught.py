# Checks: the script may catch SystemExit and go on; exit code 0; sys.exc_info is clean afterwards.
import sys
try:
    sys.exit(4)
except SystemExit as e:
    print("caught", e.code, e.args)
print(sys.exc_info())
