# Checks: PYTHONSAFEPATH=1: the script's folder is not on sys.path, so the sibling cannot be imported.
import sys, os
print(os.path.dirname(os.path.abspath(__file__)) in sys.path, sys.flags.safe_path)
try:
    import sibling
except ImportError as e:
    print(e)
