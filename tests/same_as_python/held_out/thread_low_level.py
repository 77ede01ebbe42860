# Checks: _thread.start_new_thread threads (unknown to threading), a thread started by a C library callback, threads started before and in atexit.
import _thread, threading, time, atexit
l = _thread.allocate_lock(); l.acquire(); out = []
def f(x): out.append((x, threading.current_thread().__class__.__name__)); l.release()
_thread.start_new_thread(f, (1,)); l.acquire(); print(out, _thread._count() <= 1)
def bad(): raise ValueError("low level")
import sys; sys.unraisablehook = lambda u: (print("unraisable", u.exc_type.__name__, u.err_msg), l.release()); _thread.start_new_thread(bad, ()); l.acquire()
_thread.start_new_thread(lambda: (_thread.exit()), ()); time.sleep(0.02)
def late():
    try: t = threading.Thread(target=lambda: print("thread in atexit")); t.start(); t.join()
    except RuntimeError as e: print(e)
atexit.register(late); print("end")
