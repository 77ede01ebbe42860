# The end of a program: sys.exit("no data")
import sys

print("working", flush=True)
sys.exit("no data")
