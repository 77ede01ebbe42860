"""Docstring of the script."""  # Checks: contents of __main__: dir, __doc__, __annotations__, __spec__, __loader__, __file__, __builtins__, __cached__, __package__.
print(sorted(dir()))
import sys, os, builtins
print(list(globals())[:9])
x: int = 3
print(__name__, __doc__, __annotations__, __spec__, __package__)
print(type(__loader__).__module__, type(__loader__).__name__, __loader__.name, os.path.basename(__loader__.path), __loader__.get_filename("__main__") == __file__)
print(os.path.basename(__file__), os.path.isabs(__file__), __cached__, __builtins__ is builtins, type(__builtins__).__name__)
m = sys.modules["__main__"]
print(type(m).__name__, repr(m).replace(os.path.dirname(os.path.abspath(__file__)), "DIR"), m.__dict__ is globals(), m.x, m.__name__)
print(__loader__.is_package("__main__"), __loader__.get_source("__main__").splitlines()[0][:10])
import __main__
print(__main__ is m, hasattr(__main__, "__path__"))
