# The last flush fails: Python ends with 120.
import os
import sys

os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
sys.stdout = open(1, "w", closefd=False)
print("lost")
