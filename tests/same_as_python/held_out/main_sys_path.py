# Checks: sys.path[0] is the script's folder, the rest is Python's own; path_hooks, meta_path and path_importer_cache types unchanged.
import sys, os
here = os.path.dirname(os.path.abspath(__file__))
print(sys.path[0] == here, [p.replace(here, "HERE") for p in sys.path])
print([getattr(f, "__name__", type(f).__name__) for f in sys.meta_path])
print([getattr(f, "__name__", type(f).__name__) for f in sys.path_hooks])
