# Checks: the user's own script is called hotloop.py and imports a sibling package hotloop_utils; __main__ is the script.
import sys, hotloop_utils
print(__name__, hotloop_utils.V, sys.argv[1:], "hotloop" in sys.modules)
if __name__ == "__main__":
    import hotloop as again
    print(again.__name__, again is sys.modules["__main__"], again.__file__ == __file__)
