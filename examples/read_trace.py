"""Read a run with pandas: its streams as they lie on the disk, without hotloop. Without pandas, with pyarrow alone.

python examples/read_trace.py runs/<run>
"""

import json
import sys
from pathlib import Path

import pyarrow as pa

try:
    import pandas as pd
except ImportError:
    pd = None


def read(path):
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
        return reader.read_all()


def read_nodes(folder):
    """What the numbers of nodes stand for: a row a node of each thread's call tree."""
    lines = map(json.loads, (folder / "names.jsonl").read_text().splitlines())
    nodes = [line for line in lines if line["is"] == "node"]
    return [{"thread": n["thread"], "node": n["id"], "name": name_of(n)} for n in nodes]


def name_of(node):
    """A span has a name; time between two spans is named after them; the root is the thread itself."""
    if node["kind"] == "gap":
        return "({} → {})".format(*(side["name"] if side else "·" for side in (node["before"], node["after"])))
    return node.get("name") or "(thread)"


def timed_share(folder):
    """Fine spans are timed in a part of the calls only, to save time; all are counted."""
    spans = read(folder / "spans.arrows")
    timed, counted = (sum(spans[name].to_pylist()) for name in ("timed", "counted"))
    return timed / max(timed + counted, 1)


def by_span(folder):
    """Self time and calls that were timed, by span, most time first: as a pandas frame, or as an Arrow table."""
    windows = read(folder / "windows.arrows")
    if pd is not None:
        frame = windows.to_pandas().merge(pd.DataFrame(read_nodes(folder)), on=["thread", "node"])
        return frame.groupby("name")[["self_ns", "calls"]].sum().sort_values("self_ns", ascending=False)
    nodes = pa.Table.from_pylist(read_nodes(folder))
    nodes = nodes.cast(pa.schema([("thread", pa.int32()), ("node", pa.int32()), ("name", pa.string())]))
    joined = windows.join(nodes, ["thread", "node"])
    sums = joined.group_by("name").aggregate([("self_ns", "sum"), ("calls", "sum")])
    return sums.sort_by([("self_ns_sum", "descending")])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/read_trace.py RUN")
    for process in sorted(Path(sys.argv[1]).glob("*/process.json")):
        print(f"{process.parent.name}: {timed_share(process.parent):.0%} of the calls were timed")
        table = by_span(process.parent)
        rows = table.itertuples() if pd is not None else zip(*table.to_pydict().values(), strict=True)
        for name, self_ns, calls in list(rows)[:8]:
            print(f"  {name[:40]:40} {self_ns / 1e9:8.3f} s  {calls} calls timed")
