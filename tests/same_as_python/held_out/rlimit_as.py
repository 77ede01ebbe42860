# Checks: RLIMIT_AS tight (current size + 64 MB): MemoryError for a big allocation is caught, small work and exit go on.
import resource, sys, threading
vm = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (vm + (64 << 20),) * 2)
try: bytearray(200 << 20)
except MemoryError as e: print("MemoryError", e)
class Env:
    def reset(self): return 0
    def step(self, a): return [a] * 1000
e = Env(); e.reset(); print(sum(len(e.step(i)) for i in range(2000)))
t = threading.Thread(target=e.step, args=(1,)); t.start(); t.join()
sys.exit(3)
