# coding: klingon  Checks: unknown source encoding gives Python's SyntaxError.
print(1)
