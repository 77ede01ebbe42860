"""Read a run directory's streams directly, without hotloop: with pandas if it is there, else with pyarrow.

python examples/read_trace.py runs/<run>
"""

import json
import sys
from pathlib import Path

import pyarrow as pa


def read(path):
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
        return reader.read_all()


if __name__ == "__main__":
    for process in sorted(Path(sys.argv[1]).glob("*/process.json")):
        folder = process.parent
        lines = (folder / "names.jsonl").read_text().splitlines()
        names = {(e["thread"], e["id"]): e for e in map(json.loads, lines) if e["is"] == "node"}
        windows = read(folder / "windows.arrows")
        total = windows.group_by(["thread", "node"]).aggregate([("self_ns", "sum"), ("calls", "sum")])
        rows = sorted(total.to_pylist(), key=lambda row: -row["self_ns_sum"])
        print(folder.name)
        for row in rows[:8]:
            node = names[row["thread"], row["node"]]
            print(f"  {node.get('name', node['kind']):30} {row['self_ns_sum'] / 1e9:8.3f} s  {row['calls_sum']} calls")
