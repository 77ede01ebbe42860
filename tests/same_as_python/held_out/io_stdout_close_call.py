# Checks: the script closes sys.stdout itself; later prints raise, exception goes to stderr; exit code 1.
import sys
print("before")
sys.stdout.close()
try: print("x")
except ValueError as e: sys.stderr.write(f"{e}\n")
print("uncaught")
