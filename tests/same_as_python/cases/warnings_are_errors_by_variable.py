# PYTHONWARNINGS=error from the start.
import time
import warnings

try:
    warnings.warn("caught")
except UserWarning as error:
    print("error", error)
time.sleep(0.2)
