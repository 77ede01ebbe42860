# Checks (strict): the script sees only its own files in the cwd, at start and at exit (a recorder writing into the cwd shows up).
import os, atexit
print(sorted(os.listdir(".")), sorted(os.listdir(os.path.dirname(os.path.abspath(__file__)))))
atexit.register(lambda: print(sorted(os.listdir("."))))
