# sys.stderr is an object of the script, whose content it prints.
import atexit
import io
import sys
import time

sys.stderr = said = io.StringIO()
atexit.register(lambda: print(repr(said.getvalue())))
time.sleep(0.1)
