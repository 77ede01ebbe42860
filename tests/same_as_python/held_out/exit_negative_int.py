# Checks: sys.exit(-1) gives code 255.
import sys
sys.exit(-1)
