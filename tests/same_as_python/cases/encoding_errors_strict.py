# The error handlers of the streams are Python's.
import sys

print(sys.stdin.errors, sys.stdout.errors, sys.stderr.errors, sys.stdout.encoding)
try:
    print("\udcff")
except UnicodeEncodeError as error:
    print("refused", error.reason)
