# Checks: RLIMIT_FSIZE small: writing beyond gives OSError EFBIG (SIGXFSZ ignored), nothing else dies; short output files intact.
import resource, sys
open("small.txt", "w").write("before limit")
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
f = open("big.txt", "wb", buffering=0)
try:
    for _ in range(10): f.write(b"x" * 1000)
except OSError as e: print(e.errno, e.strerror, f.tell())
class Env:
    def reset(self): return 0
    def step(self, a): return a
e = Env(); e.reset()
for i in range(5000): e.step(i)
sys.exit(7)
