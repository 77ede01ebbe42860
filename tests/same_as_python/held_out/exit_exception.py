# Checks: an uncaught exception prints exactly Python's traceback (no frames of a launcher) and code 1.
def f(x):
    return g(x + 1)

def g(x):
    d = {"a": [1, 2, 3]}
    return d["a"][x] + d["b"][x]

print("start")
f(0)
