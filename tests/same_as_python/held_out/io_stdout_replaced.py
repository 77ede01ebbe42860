# Checks: sys.stdout replaced by StringIO, a Tee, a class without fileno; redirect_stdout; print goes there; sys.__stdout__ is the original; __stderr__ too.
import sys, io, contextlib
print(sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__, sys.stdin is sys.__stdin__, type(sys.stdout).__name__, sys.stdout.name, sys.stdout.mode, sys.stdout.line_buffering, sys.stdout.newlines, sys.stdout.errors, sys.stderr.errors, type(sys.stdout.buffer).__name__, type(sys.stdout.buffer.raw).__name__)
buf = io.StringIO()
with contextlib.redirect_stdout(buf), contextlib.redirect_stderr(buf):
    print("captured"); print("err", file=sys.stderr)
print(repr(buf.getvalue()))
class Tee:
    def __init__(self, *s): self.s = s; self.calls = []
    def write(self, x): self.calls.append(x); [f.write(x) for f in self.s]
    def flush(self): self.calls.append("FLUSH")
t = Tee(sys.stdout); old = sys.stdout; sys.stdout = t
print("a", 1, sep="-", end="!\n"); print("b", flush=True); print()
print(*range(3))
sys.stdout = old
print(t.calls)
class NoFlush:
    def write(self, x): old.write(x.upper())
sys.stdout = NoFlush(); print("upper")
try: print("x", flush=True)
except AttributeError as e: sys.stdout = old; print(e)
print("direct", file=sys.__stdout__)
sys.stdout = Tee(old); print("left replaced at exit")
