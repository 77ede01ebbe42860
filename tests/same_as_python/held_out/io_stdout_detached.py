# Checks: sys.stdout.detach() and a new wrapper with other encoding and newline; old object unusable; exit without complaints.
import sys, io
old = sys.stdout
raw = sys.stdout.detach()
try: old.write("x")
except ValueError as e: sys.stderr.write(f"{e}\n")
sys.stdout = io.TextIOWrapper(raw, encoding="latin-1", errors="replace", newline="\r\n", line_buffering=True)
print("grüße €")
print("second")
