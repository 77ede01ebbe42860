# Checks: fork + exec (execvp of echo, execve of Python with an own environment without the parent's variables), posix_spawn, os.system, os.popen codes.
import os, sys
def wait(pid): return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
pid = os.fork()
if pid == 0: os.execvp("echo", ["echo", "from echo"])
print(wait(pid), flush=True)
pid = os.fork()
if pid == 0: os.execve(sys.executable, [sys.executable, "-c", "import os; print(sorted(k for k in os.environ if k != 'LC_CTYPE')); os._exit(7) if not print(end='', flush=True) else 0"], {"ONLY": "1"})
print(wait(pid), flush=True)
print(wait(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 9"], os.environ)), flush=True)
print(os.waitstatus_to_exitcode(os.system(f"{sys.executable} -c 'raise SystemExit(6)'")), os.popen("echo hi").read().strip(), os.popen("exit 3").close(), flush=True)
print(os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", "raise SystemExit(8)"]))
