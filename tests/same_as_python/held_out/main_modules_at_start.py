# Checks: modules commonly used as "already imported?" switches are not in sys.modules at start, and common names are free for own modules.
import sys
# Taken by a bare interpreter anyway: nothing below. A program asks these: 'torch' in sys.modules, 'IPython', 'pytest', 'matplotlib', 'coverage', 'pdb' ...
for name in "torch numpy gymnasium matplotlib rich psutil stable_baselines3 IPython pytest coverage pdb cProfile tracemalloc multiprocessing asyncio tkinter record spans hooks clock utils report cli trace sampler config model train env replay".split():
    if name in sys.modules:
        print("present:", name)
print("done", "__main__" in sys.modules, "site" in sys.modules)
