# Checks (strict): uncaught RecursionError prints the same number of repeated lines: same stack depth below the script.
def f(n):
    return f(n + 1)
f(0)
