# Checks: subprocess of itself and of other Python invocations (-c, -m, -I, -S, -E, -B, -O, -X): outputs, codes, stderr untouched by the tool.
import subprocess, sys
if len(sys.argv) > 1:
    print("child", sys.argv[1:], __name__); print("err", file=sys.stderr); sys.exit(3)
def show(*a, **k):
    p = subprocess.run([sys.executable, *a], capture_output=True, text=True, **k)
    print(a[:2] if a[0] != __file__ else a[1:], p.returncode, repr(p.stdout), repr("\n".join(l for l in p.stderr.splitlines() if not l.startswith("hotloop:"))))
show(__file__, "x")
show("-c", "import sys; print(sys.flags.isolated, sys.argv)", "arg")
show("-I", "-c", "import sys; print(sys.flags.isolated, sys.path[0] != '')")
show("-S", "-c", "import sys; print('site' in sys.modules)")
show("-E", "-B", "-O", "-c", "import sys; print(sys.flags.optimize, sys.dont_write_bytecode)")
show("-X", "utf8", "-W", "error", "-c", "import sys; print(sys.warnoptions, sys._xoptions, sys.flags.utf8_mode)")
show("-m", "json.tool", input='{"a": 1}')
show("-", "y", input="import sys; print(sys.argv); raise SystemExit('bye')")
show("-V")
show("-c", "raise KeyError('x')")
show("nonexistent.py")
