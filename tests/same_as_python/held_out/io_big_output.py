# Checks: more than 1 MB to stdout in small and large writes, and 200 KB to stderr, complete and in order.
import sys, hashlib
for i in range(20000): print("line", i, "x" * 40)
sys.stdout.write("y" * 400000 + "\n")
for i in range(4000): print("e" * 50, i, file=sys.stderr)
