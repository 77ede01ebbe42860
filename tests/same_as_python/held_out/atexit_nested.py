# Checks: atexit callbacks registering further callbacks (dropped in 3.11), starting subprocesses, opening files and printing at the very end.
import atexit, subprocess, sys
def last():
    print("registered in atexit")
def first():
    atexit.register(last)
    print(subprocess.run([sys.executable, "-c", "print('sub in atexit')"], capture_output=True, text=True).stdout.strip())
    open("end.txt", "w").write("written at exit")
atexit.register(first)
print("main")
