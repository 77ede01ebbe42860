# Checks: SyntaxWarnings and DeprecationWarnings of the compiler for the script itself (is with literal, invalid escape) with its file name and line, once.
x = 3
print(x is 3, "\d")
assert (x, "always true")
