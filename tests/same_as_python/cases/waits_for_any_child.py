# os.wait finds only the script's own children.
import os

pid = os.fork()
if pid == 0:
    os._exit(5)
found, status = os.wait()
print(found == pid, os.waitstatus_to_exitcode(status))
try:
    os.wait()
except ChildProcessError:
    print("no other child")
