def f(x): return x + 100
