# Checks: names in os.environ apart from HOTLOOP*/PYTHON* are the same, and values of PATH, HOME, LD_PRELOAD, LD_LIBRARY_PATH, OMP/MKL settings.
import os
print(sorted(k for k in os.environ if not k.startswith(("HOTLOOP", "PYTHON", "COLUMNS", "LINES"))))
for k in ("PATH", "HOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "TMPDIR", "LC_CTYPE", "LANG", "PWD", "OLDPWD", "_"):
    print(k, os.environ.get(k) if k != "_" else "")
