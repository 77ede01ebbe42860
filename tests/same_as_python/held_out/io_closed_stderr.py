# Checks: started with stderr closed and an uncaught exception: code 1, stdout intact, the file that got fd 2 holds only the script's text (and Python's traceback if any).
import sys
f = open("result.txt", "w")
f.write(f"{sys.stderr} fd {f.fileno()}\n"); f.flush()
print("out")
raise ValueError("lost")
