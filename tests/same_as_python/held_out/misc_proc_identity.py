# Checks (strict): /proc/self/comm and parent relation: the script is a direct child of the caller and the process name is python's; getpid is stable; ppid alive.
import os
print(open("/proc/self/comm").read().strip(), os.getpid() == os.getpgrp(), len(os.listdir(f"/proc/{os.getpid()}/task")) >= 1)
kids = open(f"/proc/self/task/{os.getpid()}/children").read().split() if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else []
print("own children at start:", len(kids))
