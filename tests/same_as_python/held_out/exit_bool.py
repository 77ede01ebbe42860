# Checks: sys.exit(True) is an int: code 1 and nothing on stderr.
import sys
sys.exit(True)
