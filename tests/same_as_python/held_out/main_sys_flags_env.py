# Checks: PYTHONOPTIMIZE, PYTHONDONTWRITEBYTECODE, PYTHONUNBUFFERED, PYTHONUTF8, PYTHONVERBOSE=0, PYTHONNOUSERSITE from the environment reach the script.
import sys
print(sys.flags)
print(__debug__, sys.stdout.line_buffering, sys.stdout.write_through, sys.dont_write_bytecode)
assert False, "asserts are off"
def f():
    "doc"
print(f.__doc__)
