# Checks: chained exceptions (__cause__, __context__, from None) print exactly as Python prints them.
def low():
    {}["missing"]
def mid():
    try:
        low()
    except KeyError as e:
        raise ValueError("mid") from e
def other():
    try:
        1 / 0
    except ZeroDivisionError:
        raise OSError(2, "hidden") from None
try:
    mid()
except ValueError:
    try:
        other()
    except OSError:
        raise RuntimeError("during handling")
