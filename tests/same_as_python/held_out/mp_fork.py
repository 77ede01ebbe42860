# Checks: multiprocessing fork: Process exit codes by every route, Queue, Pipe, Event, Value, order of output, children do not run the parent's atexit.
import multiprocessing as mp, os, sys, atexit, time
atexit.register(lambda: print("atexit of", "parent" if os.getpid() == PID else "WRONG child"))
PID = os.getpid()
def child(kind, q, v, ev):
    with v.get_lock(): v.value += 1
    q.put((kind, mp.current_process().name, mp.parent_process() is not None)); q.close(); q.join_thread()
    ev.wait(5)
    if kind == "exit": sys.exit(5)
    if kind == "string": sys.exit("text of child")
    if kind == "raise": raise ValueError("in child")
    if kind == "_exit": os._exit(6)
    if kind == "kill": os.kill(os.getpid(), 9)
    print("normal end of child", flush=True)
ctx = mp.get_context("fork")
for kind in ("normal", "exit", "string", "raise", "_exit", "kill"):
    q, v, ev = ctx.Queue(), ctx.Value("i", 0), ctx.Event()
    p = ctx.Process(target=child, args=(kind, q, v, ev)); p.start()
    print(q.get(timeout=5)); ev.set(); p.join(); print(kind, p.exitcode, v.value, flush=True)
print(mp.active_children(), mp.current_process().name, mp.get_start_method())
