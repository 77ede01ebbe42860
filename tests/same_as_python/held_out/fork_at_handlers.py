# Checks: os.register_at_fork callbacks of the script run in the right order; the parent's random state is untouched; threading after fork sees one thread.
import os, random, sys, threading
log = []
os.register_at_fork(before=lambda: log.append("before"), after_in_parent=lambda: log.append("parent"), after_in_child=lambda: log.append("child"))
random.seed(3)
t = threading.Thread(target=threading.Event().wait, args=(0.3,)); t.start()
r, w = os.pipe()
pid = os.fork()
if pid == 0:
    os.write(w, repr((log, threading.active_count(), threading.current_thread().name)).encode())
    os._exit(0)
os.waitpid(pid, 0)
sys.stdout.write(os.read(r, 200).decode() + "\n")
print(log, random.random()); t.join()
