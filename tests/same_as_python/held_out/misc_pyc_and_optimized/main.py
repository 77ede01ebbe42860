# Checks: __pycache__ of siblings is written (or not with sys.dont_write_bytecode), unchecked pyc in place of source is used; py files changed after start.
import sys, os, py_compile
import sib
print(os.path.basename(sib.__cached__), os.path.exists(sib.__cached__), sorted(f for f in os.listdir("__pycache__") if "sib" in f))
py_compile.compile("src_only.py", cfile="compiled_only.pyc", doraise=True); os.remove("src_only.py")
import compiled_only; print(compiled_only.V, type(compiled_only.__loader__).__name__)
sys.dont_write_bytecode = True
import sib2; print(os.path.exists(sib2.__cached__))
