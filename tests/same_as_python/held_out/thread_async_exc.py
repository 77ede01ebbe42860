# Checks: PyThreadState_SetAsyncExc kills a thread that loops over env.step; subclasses of Thread, Thread without __init__, excepthook gets it; ident and native_id differ.
import ctypes, threading, time
class Kill(BaseException): pass
class Env:
    def reset(self): return 0
    def step(self, a): return a
state = []
def loop(e):
    while True: e.step(1)
class T(threading.Thread):
    def run(self):
        try: loop(Env())
        except Kill: state.append("killed")
t = T(); t.start(); time.sleep(0.05)
print(ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(t.ident), ctypes.py_object(Kill))); t.join(5); print(state, t.is_alive(), t.name)
class No(threading.Thread):
    def __init__(self): pass
try: No().start()
except RuntimeError as e: print(e)
try: t.start()
except RuntimeError as e: print(e)
