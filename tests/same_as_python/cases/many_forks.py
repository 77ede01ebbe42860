# Three hundred short children; the script's folder has nothing new in it.
import os

codes = []
for i in range(300):
    pid = os.fork()
    if pid == 0:
        os._exit(i % 7)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(sum(codes), sorted(os.listdir(".")))
