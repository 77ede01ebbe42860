# Checks: stdout's reader goes away (head): BrokenPipeError in the script's child, its exit code and stderr text are Python's.
import subprocess, sys
if len(sys.argv) > 1:
    for i in range(100000): print("line", i)
    sys.exit(0)
p = subprocess.Popen([sys.executable, __file__, "child"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
print(p.stdout.readline()); p.stdout.close()
err = p.stderr.read().decode().splitlines()
print(p.wait(), [l for l in err if not l.startswith("hotloop:")][-3:])
