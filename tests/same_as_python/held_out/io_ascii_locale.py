# Checks: LC_ALL=C with PYTHONCOERCECLOCALE=0 and PYTHONUTF8=0: encodings, file-system encoding, surrogateescape in argv, printing non-ASCII fails as in Python.
import sys, locale, os
print(sys.stdout.encoding, sys.stdout.errors, sys.getfilesystemencoding(), locale.getpreferredencoding(False), locale.setlocale(locale.LC_CTYPE), sys.flags.utf8_mode)
print(ascii(sys.argv[1:]), os.environ.get("LC_ALL"), os.environ.get("LC_CTYPE"))
open("t.txt", "w").write("x"); print(open("t.txt").encoding)
sys.stdout.reconfigure(errors="strict")
print("grün")
