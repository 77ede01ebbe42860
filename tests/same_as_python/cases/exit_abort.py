# The end of a program: os.kill(os.getpid(), 9)
import os

print("working", flush=True)
os.kill(os.getpid(), 9)
