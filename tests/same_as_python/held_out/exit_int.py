# Checks: sys.exit(7) ends with code 7 and flushes unflushed stdout.
import sys
sys.stdout.write("before exit, no newline")
sys.exit(7)
