# Checks: unraisable exceptions in __del__ go to sys.unraisablehook / stderr and leave the exit code alone.
import sys
class Del:
    def __call__(self):
        raise ValueError("in del")
    def __repr__(self):
        return "<del of A>"
class A:
    __del__ = Del()
a = A()
del a
def hook(u):
    print("hook", u.exc_type.__name__, u.exc_value, u.object, u.err_msg)
sys.unraisablehook = hook
b = A()
del b
sys.unraisablehook = sys.__unraisablehook__
last = A()  # dies at interpreter shutdown
print("end")
