# Checks: the cwd is deleted while the script runs (clean-up of a temp folder): os.getcwd fails, imports, children and the end still work.
import os, sys, subprocess, shutil
os.mkdir("gone"); os.chdir("gone"); os.rmdir(os.path.abspath("."))
try: os.getcwd()
except FileNotFoundError as e: print(e)
import colorsys, gymnasium
print(subprocess.run([sys.executable, "-c", "print('child in deleted cwd')"], capture_output=True, text=True).stdout)
sys.exit(4)
