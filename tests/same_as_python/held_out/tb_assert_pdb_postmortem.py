# Checks: traceback objects: linecache lines, tb_lineno, walk_tb, format_exception equal to what Python gives for a nested call.
import linecache, traceback, sys, os
def a(): return b()
def b():
    x = [1, 2]
    assert len(x) == 3, f"got {x}"
try:
    a()
except AssertionError as e:
    for fr, no in traceback.walk_tb(e.__traceback__):
        print(fr.f_code.co_name, no, linecache.getline(fr.f_code.co_filename, no).strip())
    print("".join(traceback.format_exception(e)).replace(os.path.dirname(os.path.abspath(__file__)), "DIR"))
    print(traceback.TracebackException.from_exception(e, capture_locals=True).stack[-1].locals["x"])
