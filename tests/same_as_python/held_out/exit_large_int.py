# Checks: sys.exit(256 + 3) is truncated to 3 by the system.
import sys
sys.exit(259)
