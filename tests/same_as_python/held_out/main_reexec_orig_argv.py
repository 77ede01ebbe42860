# Checks: the "restart myself with changed environment" idiom by sys.orig_argv keeps arguments and prints the same.
import os, sys
print(os.environ.get("RESTARTED"), sys.argv[1:], __name__, flush=True)
if "RESTARTED" not in os.environ:
    os.environ["RESTARTED"] = "1"
    os.execv(sys.executable, sys.orig_argv)
sys.exit(12)
