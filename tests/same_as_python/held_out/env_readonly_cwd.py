# Checks: cwd not writable and rights dropped (setuid nobody if root): the script prints, exits 9; nobody complains about files that cannot be written.
import os, sys, threading, time
os.mkdir("ro"); os.chdir("ro"); os.chmod(".", 0o555)
if os.getuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)
try: open("x.txt", "w")
except PermissionError as e: print(e)
class Env:
    def reset(self): return 0
    def step(self, a): return a
e = Env(); e.reset(); [e.step(i) for i in range(100)]
t = threading.Thread(target=time.sleep, args=(0.05,)); t.start(); t.join()
sys.exit(9)
