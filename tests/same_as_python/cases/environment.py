# The environment is the one that the script was started with, for it and for its children.
import os
import subprocess
import sys

print(sorted(name for name in os.environ if "HOTLOOP" in name or name == "PYTHONPATH"))
program = "import os; print(sorted(n for n in os.environ if 'HOTLOOP' in n or n == 'PYTHONPATH'))"
print(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout)
print(len(os.environ))
