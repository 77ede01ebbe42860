# Checks: re-execution by os.execv(sys.executable, [sys.executable] + sys.argv) (relative argv[0]) and by os.execlp of another program.
import os, sys
if os.environ.get("ROUND") != "1":
    os.environ["ROUND"] = "1"
    print("first", sys.argv[1:], flush=True)
    os.execv(sys.executable, [sys.executable] + sys.argv)
print("second", sys.argv[1:], flush=True)
os.execlp("sh", "sh", "-c", "echo from sh; exit 17")
