# Checks: sys.exit(object whose __str__ raises) ends with code 1 in Python's own way.
import sys
class Reason:
    def __str__(self):
        raise ValueError("no str")
sys.exit(Reason())
