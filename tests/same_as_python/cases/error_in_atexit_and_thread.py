# Errors in threads, atexit handlers and finalizers.
import atexit
import threading


class Finalized:
    def __del__(self):
        raise RuntimeError("in __del__")


def fail():
    raise RuntimeError("in atexit")


atexit.register(fail)
thread = threading.Thread(target=lambda: 1 / 0, name="worker")
thread.start()
thread.join()
Finalized()
print("end of main")
