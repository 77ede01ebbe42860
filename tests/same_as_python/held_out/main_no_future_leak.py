# Checks: without a future import annotations are evaluated, and code compiled by exec/compile inherits no future flags.
import inspect
def f(x: 1 + 1) -> "str":
    pass
print(f.__annotations__)
exec("def g(x: 2 + 2): pass")
print(g.__annotations__, inspect.currentframe().f_code.co_flags & 0x1fe0000, eval("f").__module__)
class A:
    y: 3 * 3 = 1
print(A.__annotations__, __annotations__ if "__annotations__" in globals() else None)
