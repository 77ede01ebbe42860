# Checks: unflushed stdout data is duplicated by fork exactly as in Python (once by the child, once by the parent).
import os, sys
sys.stdout.write("unflushed;")
pid = os.fork()
if pid:
    os.waitpid(pid, 0)
sys.stdout.write("child\n" if pid == 0 else "parent\n")
