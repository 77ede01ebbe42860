# The end of a program: sys.exit(7)
import sys

print("working", flush=True)
sys.exit(7)
