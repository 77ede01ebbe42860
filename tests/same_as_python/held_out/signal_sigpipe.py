# Checks: SIGPIPE is ignored as in Python: writing to a closed pipe raises BrokenPipeError; with SIG_DFL in a fork the child dies of -13.
import os, signal
r, w = os.pipe(); os.close(r)
try:
    os.write(w, b"x")
except BrokenPipeError as e:
    print("BrokenPipeError", e.errno)
pid = os.fork()
if pid == 0:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.write(w, b"x")
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
