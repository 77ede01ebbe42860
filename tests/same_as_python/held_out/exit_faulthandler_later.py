# Checks: faulthandler.dump_traceback_later(exit=True) ends the process with code 1 without clean-up; and faulthandler.register on SIGUSR1 works.
import faulthandler, time, signal, os, atexit
f = open("dump.txt", "w")
faulthandler.register(signal.SIGUSR1, file=f, all_threads=False); os.kill(os.getpid(), signal.SIGUSR1)
print(open("dump.txt").read().count("exit_faulthandler_later.py") >= 1, flush=True)
atexit.register(print, "WRONG"); print("lost")
faulthandler.dump_traceback_later(0.2, exit=True, file=f)
time.sleep(20)
