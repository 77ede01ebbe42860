# The end of a program: sys.exit()
import sys

print("working", flush=True)
sys.exit()
