# Checks: C-level redirection of fd 1 and 2 into files by dup2 and back; subprocess and print output land in the right place.
import os, subprocess, sys
save = os.dup(1)
fd = os.open("log.txt", os.O_WRONLY | os.O_CREAT); os.dup2(fd, 1); os.dup2(fd, 2)
print("to file", flush=True); subprocess.run(["echo", "echo to file"]); sys.stderr.write("err to file\n")
os.dup2(save, 1); print("to stdout")
