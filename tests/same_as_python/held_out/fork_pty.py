# Checks: the script runs itself on a pseudo terminal (pty.fork): isatty, line buffering, prompt and echo-free input, exit code.
import os, pty, sys, termios
if len(sys.argv) > 1:
    print(sys.stdin.isatty(), sys.stdout.isatty(), sys.stdout.line_buffering, os.get_terminal_size().columns, input("name? ")); sys.exit(5)
pid, fd = pty.fork()
if pid == 0: os.execv(sys.executable, [sys.executable, __file__, "child"])
a = termios.tcgetattr(fd); a[3] &= ~termios.ECHO; termios.tcsetattr(fd, termios.TCSANOW, a)
termios.tcsetwinsize(fd, (30, 99)); os.write(fd, b"bob\n"); out = b""
try:
    while d := os.read(fd, 1000): out += d
except OSError: pass
print([l for l in out.splitlines() if not l.startswith(b"hotloop:")], os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
