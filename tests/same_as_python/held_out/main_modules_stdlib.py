# Checks (strict): which standard-library modules are loaded at start: nothing beyond a bare interpreter.
import sys
print(sorted(m for m in sys.modules if not m.startswith("hotloop")))
