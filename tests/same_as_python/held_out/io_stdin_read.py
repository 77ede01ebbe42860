# Checks: stdin: readline, iteration, rest by read, then input() with EOFError; nobody else reads from it; isatty false.
import sys
print(sys.stdin.isatty(), sys.stdin.fileno(), sys.stdin.encoding, sys.stdin.errors)
print(repr(input("prompt> ")), repr(sys.stdin.readline()), [l for l, _ in zip(sys.stdin, range(2))], repr(sys.stdin.read()))
try:
    input("more? ")
except EOFError as e:
    print("EOF", e)
input()
