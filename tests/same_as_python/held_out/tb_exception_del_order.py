# Checks: on an uncaught exception the traceback is printed before atexit runs, local objects live until the traceback is dropped, module globals die after.
import atexit, sys
class Loud:
    def __init__(self, n): self.n = n
    def __del__(self): sys.stderr.write(f"del {self.n}\n")
keep = Loud("global")
atexit.register(lambda: sys.stderr.write("atexit\n"))
def f():
    local = Loud("local")
    raise ValueError("x")
f()
