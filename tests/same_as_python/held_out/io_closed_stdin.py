# Checks: started with stdin closed: sys.stdin is None, fd 0 is free and given to the first open.
import sys, os
print(sys.stdin)
fd = os.open(__file__, os.O_RDONLY)
print(fd, os.read(fd, 8))
try: input()
except RuntimeError as e: print(e)
