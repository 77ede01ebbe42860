# Checks: reconfigure of stdout (encoding, errors, line_buffering), write_through, surrogates with handlers, PYTHONIOENCODING from env.
import sys
print(sys.stdout.encoding, sys.stdout.errors, sys.stderr.encoding, sys.stdin.encoding)
print("ü € \udc80 \U0001f600")
sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
print("ü \udc80"); print(sys.stdout.line_buffering)
sys.stdout.reconfigure(errors="strict")
try: print("abc \udc80")
except UnicodeEncodeError as e: print(e)
sys.stdout.reconfigure(errors="surrogateescape"); print("\udcff")
sys.stderr.write("err ü \udc80\n")
