# Checks: an uncaught exception in a thread is printed with the name Thread-1 (work) (the tool's own threads do not use up the counter); code 0.
import threading
def work():
    raise KeyError("thread")
t = threading.Thread(target=work)
print(t.name)
t.start(); t.join()
print(threading.Thread().name, threading.Timer(1, print).name)
