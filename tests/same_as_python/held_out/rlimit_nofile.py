# Checks: RLIMIT_NOFILE small: the script can open exactly as many files until EMFILE minus those it had; after closing all goes on (hooks must not need descriptors).
import resource, os, sys, subprocess
n0 = max(int(f) for f in os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (n0 + 12, n0 + 12))
fs = []
try:
    while True: fs.append(os.open("/dev/null", os.O_RDONLY))
except OSError as e: print(e.strerror, len(fs) >= 10)
class Env:
    def reset(self): return 0
    def step(self, a): return a
e = Env(); e.reset(); print(sum(e.step(i) for i in range(1000)))
for f in fs[:8]: os.close(f)
print(subprocess.run([sys.executable, "-c", "print('ok')"], capture_output=True).stdout)
fs2 = [os.open("/dev/null", os.O_RDONLY) for _ in range(6)]
sys.exit(2)
