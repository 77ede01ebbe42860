# Checks: sys.exit(object) prints str(object) on stderr, once; code 1.
import sys
class Reason:
    def __str__(self):
        print("str called")
        return "reason object"
    def __repr__(self):
        return "WRONG: repr"
sys.exit(Reason())
