# Checks: a SIGTERM handler of the script is called in the main thread during time.sleep, saves a checkpoint and exits 143.
import os, signal, sys, time, threading
def stop(num, frame):
    print("handler", signal.Signals(num).name, frame.f_code.co_name, threading.current_thread().name)
    with open("ckpt.txt", "w") as f:
        f.write("saved")
    sys.exit(143)
print("old", signal.signal(signal.SIGTERM, stop) is signal.SIG_DFL, flush=True)
def train():
    while True:
        time.sleep(20)
threading.Timer(0.2, os.write, (1, b"ready\n")).start()
train()
