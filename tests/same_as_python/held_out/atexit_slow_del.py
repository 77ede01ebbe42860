# Checks: objects in reference cycles with __del__, module globals set to None order, sys.modules teardown; printing from __del__ at interpreter shutdown.
import sys
class Node:
    def __init__(self, n): self.n = n; self.me = self
    def __del__(self): print("del", self.n, sys is None, print is None, sys.is_finalizing())
x = Node("cycle global")
y = Node("second cycle")
class Holder:
    z = Node("class attribute")
sys.modules["__extra__"] = Node("fake module")
def f():
    Node("cycle local")
f()
import gc
print("collected", gc.collect() > 0)
