# stdout is closed before the program starts.
import sys

print("to stdout")
print("to stderr", file=sys.stderr)
sys.exit(4 if sys.stdout is None else 5)
