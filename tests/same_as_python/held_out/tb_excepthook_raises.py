# Checks: a sys.excepthook which itself raises prints "Error in sys.excepthook" and the original exception.
import sys
def hook(t, v, tb):
    raise TypeError("hook is broken")
sys.excepthook = hook
{}[1]
