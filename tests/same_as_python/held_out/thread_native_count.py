# Checks (strict): number of system threads of the process (/proc/self/task), used by programs which fork only when single-threaded.
import os
print(len(os.listdir("/proc/self/task")))
