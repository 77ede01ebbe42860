# Checks: PYTHONPATH and sitecustomize/usercustomize of the user given in it keep working, in the script and in its children; PYTHONSTARTUP is ignored.
import sys, os, subprocess, inpath
print(inpath.V, "sitecustomize" in sys.modules, getattr(sys, "from_sitecustomize", None), os.environ["PYTHONPATH"], flush=True)
subprocess.run([sys.executable, "-c", "import sys, os, inpath; print('child', inpath.V, sys.from_sitecustomize, os.environ['PYTHONPATH'])"])
print([p for p in sys.path if "lib_" in p])
