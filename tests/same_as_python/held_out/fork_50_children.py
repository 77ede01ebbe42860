# Checks: 50 short forked children, nested two deep, all exit codes arrive and nobody hangs.
import os
codes = []
for i in range(50):
    pid = os.fork()
    if pid == 0:
        if i % 10 == 0:
            p2 = os.fork()
            if p2 == 0: os._exit(i)
            os._exit(os.waitstatus_to_exitcode(os.waitpid(p2, 0)[1]))
        os._exit(i)
    codes.append(pid)
print([os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in codes])
