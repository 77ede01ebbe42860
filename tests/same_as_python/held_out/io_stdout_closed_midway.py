# Checks: sys.stdout.close() in the middle: print then raises ValueError; with os.close(1) the flush at exit fails with Python's message and code 120.
import sys, os, io
s = io.StringIO(); s.close()
try: print("x", file=s)
except ValueError as e: print(e)
sys.stdout.write("pending data")
os.close(1)
