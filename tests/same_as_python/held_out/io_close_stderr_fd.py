# Checks: os.close(2) and reuse of number 2 for a data file: no diagnostics of anybody land in the data file.
import os, sys
os.close(2)
fd = os.open("data.bin", os.O_WRONLY | os.O_CREAT)
os.write(fd, b"data %d" % fd)
print("done")
