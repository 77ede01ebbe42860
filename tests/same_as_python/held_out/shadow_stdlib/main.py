# Checks: siblings named like standard-library modules the recorder may use (json, queue, statistics, platform, socket, csv, uuid, bisect, heapq, tempfile, dataclasses...) are the script's own when the script imports them.
import sys, os
here = os.path.dirname(os.path.abspath(__file__))
for name in ("json", "queue", "statistics", "platform", "socket", "csv", "uuid", "heapq", "tempfile", "dataclasses", "argparse", "gzip", "sqlite3", "struct", "bisect", "selectors", "signal", "logging", "inspect", "pickle"):
    m = __import__(name)
    print(name, getattr(m, "MINE", None), sys.modules[name] is m, os.path.dirname(getattr(m, "__file__", "") or "") == here)
