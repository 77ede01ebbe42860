# Checks: the script lowers the recursion limit to the least possible and ends with an exception; traceback and code are Python's.
import sys
def lowest():
    n = 1
    while True:
        try: sys.setrecursionlimit(n); return
        except RecursionError: n += 1
lowest()
sys.setrecursionlimit(sys.getrecursionlimit() + 12)
raise ValueError("at low limit")
