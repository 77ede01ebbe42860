# Checks: sys.excepthook of the script is used, is sys.__excepthook__ at start, and gets a traceback that starts in the script.
import sys
print(sys.excepthook is sys.__excepthook__, sys.unraisablehook is sys.__unraisablehook__, sys.displayhook is sys.__displayhook__)
def hook(t, v, tb):
    names = []
    while tb:
        names.append((tb.tb_frame.f_code.co_name, tb.tb_lineno)); tb = tb.tb_next
    print("hook", t.__name__, v, names, sys.last_value is v if hasattr(sys, "last_value") else "no last_value")
sys.excepthook = hook
def f():
    raise ValueError("custom")
f()
