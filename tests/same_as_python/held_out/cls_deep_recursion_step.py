# Checks: recursive env.step (tree search inside step) 850 deep under the default recursion limit: a wrapper adding frames per call would overflow.
class Env:
    def reset(self): return 0
    def step(self, n): return n if n == 0 else self.step(n - 1) + 1
print(Env().step(850))
