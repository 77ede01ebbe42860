# Checks: sys.stdout / sys.stderr set to None or deleted: print silent or RuntimeError; exit still works.
import sys
o = sys.stdout
sys.stdout = None; print("silent"); sys.stdout = o
del sys.stdout
try: print("x")
except RuntimeError as e: sys.stdout = o; print(e)
sys.stderr = None
sys.stdout.flush()
raise SystemExit("text nobody sees")
