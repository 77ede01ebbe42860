# Forked children end by sys.exit and by os._exit; each line comes once.
import os
import sys

print("parent", flush=True)
for code in (0, 3):
    pid = os.fork()
    if pid == 0:
        print("child", flush=True)
        sys.exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
pid = os.fork()
if pid == 0:
    os._exit(9)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
