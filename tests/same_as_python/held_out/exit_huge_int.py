# Checks: sys.exit(10**30) (does not fit in a C long) gives code 255.
import sys
sys.exit(10 ** 30)
