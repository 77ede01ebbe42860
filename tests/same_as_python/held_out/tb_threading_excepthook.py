# Checks: threading.excepthook is the default at start, replaced by the script gets the failing thread, and restored default prints.
import threading
print(threading.excepthook is threading.__excepthook__)
def hook(args):
    print("hook", args.exc_type.__name__, args.exc_value, args.thread.name)
threading.excepthook = hook
def f():
    raise OSError("in thread")
t = threading.Thread(target=f, name="worker"); t.start(); t.join()
threading.excepthook = threading.__excepthook__
t = threading.Thread(target=f, name="worker2"); t.start(); t.join()
