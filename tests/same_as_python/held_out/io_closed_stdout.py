# Checks: started with stdout closed: sys.stdout is None, print is silent, files opened by the script get no stray output; code 3.
import sys, os
print("nowhere")
f = open("result.txt", "w")
f.write(f"{sys.stdout} {sys.__stdout__} fd {f.fileno()}\n"); f.flush()
print("still nowhere")
sys.stderr.write("stderr works\n")
sys.exit(3)
