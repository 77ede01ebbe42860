# Run with -m: classes of __main__ can be pickled by threads and handlers that outlive main.
import atexit
import pickle
import sys
import threading
import time


class Thing:
    pass


def work(name):
    time.sleep(0.2)
    from pkg import late

    print(name, late.NAME, sys.argv[1:], type(pickle.loads(pickle.dumps(Thing()))).__module__, flush=True)


threading.Thread(target=work, args=("thread",)).start()
atexit.register(work, "atexit")
