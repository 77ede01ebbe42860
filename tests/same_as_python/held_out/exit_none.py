# Checks: sys.exit(None) from a nested function inside try/finally ends with code 0, finally blocks run, code after is not reached.
import sys
def inner():
    try:
        sys.exit(None)
    finally:
        print("finally")
inner()
print("never")
