# Checks: PYTHONWARNINGS=error: nothing in start or end of the tool trips over it; the script's first warning is a traceback.
import sys, threading, queue, time, json, subprocess, asyncio, logging
print(sys.warnoptions)
class Env:
    def reset(self): return 0
    def step(self, a): return a
Env().step(1)
import gymnasium
import warnings
warnings.warn("stop", UserWarning)
