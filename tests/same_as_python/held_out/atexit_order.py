# Checks: order of atexit callbacks, threading shutdown, weakref.finalize, logging.shutdown, concurrent.futures threads, __del__ of globals.
import atexit, threading, weakref, logging, concurrent.futures as cf, os, sys, time
class Loud:
    def __init__(self, n): self.n = n
    def __del__(self, w=os.write): w(2, b"del %s\n" % self.n.encode())
class H(logging.Handler):
    def emit(self, r): print("log", r.getMessage())
    def flush(self): print("handler flush")
    def close(self): print("handler close"); super().close()
atexit.register(print, "atexit 1 (registered first)")
a = Loud("a"); b = Loud("b")
fin = weakref.finalize(a, print, "finalize a")
log = logging.getLogger("x"); log.addHandler(H())
ex = cf.ThreadPoolExecutor(1)
ex.submit(lambda: (time.sleep(0.15), print("pool job done")))
def late():
    time.sleep(0.05); print("non-daemon thread done")
threading.Thread(target=late).start()
threading._register_atexit(print, "threading atexit")
atexit.register(lambda: log.warning("logging in atexit"))
atexit.register(print, "atexit 2")
atexit.unregister(max)
print("end of main", atexit._ncallbacks() - 3 >= 0)
