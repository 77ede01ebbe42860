# Checks: RecursionError is catchable and its message is Python's; the program goes on.
import sys
def f(n):
    return f(n + 1)
try:
    f(0)
except RecursionError as e:
    print(e)
class R:
    def __repr__(self):
        return repr(self)
try:
    repr(R())
except RecursionError as e:
    print(type(e).__name__)
print(sys.getrecursionlimit())
sys.setrecursionlimit(3000)
def g(n):
    return 0 if n == 0 else 1 + g(n - 1)
print(g(2900))
