# The end of a program: os._exit(6)
import os

print("working", flush=True)
os._exit(6)
