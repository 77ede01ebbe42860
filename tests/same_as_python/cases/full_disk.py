# Files may not grow beyond a size, as on a full disk: the recorder gives up, the script goes on.
import resource
import signal
import time

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
time.sleep(1.4)
print("ended well")
