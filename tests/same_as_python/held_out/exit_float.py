# Checks: sys.exit(2.0) is not an int: printed on stderr and code 1.
import sys
sys.exit(2.0)
