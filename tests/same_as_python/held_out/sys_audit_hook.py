# Checks: a sys.addaudithook of the script that forbids opens for writing, subprocess and socket events after setup does not catch the recorder in the act.
import sys, os, time
on = False; caught = []
def hook(name, args):
    if on and name in ("open", "subprocess.Popen", "socket.connect", "socket.bind", "os.rename", "os.mkdir", "os.remove", "import", "compile", "exec", "os.fork"):
        caught.append((name, str(args[0])[-40:]))
        if name == "open" and isinstance(args[1], str) and "w" in args[1]: raise PermissionError("audit")
sys.addaudithook(hook)
class Env:
    def reset(self): return 0
    def step(self, a): return a
e = Env(); e.reset(); e.step(1)
on = True
for i in range(2000): e.step(i)
time.sleep(0.3)
on = False
print(caught)
