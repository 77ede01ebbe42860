# The end of a program: sys.exit(300)
import sys

print("working", flush=True)
sys.exit(300)
