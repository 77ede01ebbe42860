# atexit handlers see the script's argv, path and __main__, and can import its siblings.
import atexit
import pickle
import sys


class Thing:
    pass


def goodbye():
    import late

    print(late.NAME, sys.argv, sys.modules["__main__"].Thing is Thing)
    print(type(pickle.loads(pickle.dumps(Thing()))).__qualname__)


atexit.register(goodbye)
