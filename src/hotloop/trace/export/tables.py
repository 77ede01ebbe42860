"""A run as CSV files, one a table, for pandas, polars, DuckDB or a spreadsheet.

Every process and thread is in every table. Times are seconds; moments are seconds since the loop began, so what was
before it is negative. Paths are names joined by " > ".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from hotloop.trace.model import Node, Process, Thread, Trace
from hotloop.trace.streams import read_streams
from hotloop.trace.summary import thread_phases

JOIN = " > "
Row = dict[str, Any]


def write(trace: Trace, path: Path) -> None:
    """Write the tables into a new folder."""
    path.mkdir()
    tables = {
        "spans": pa.Table.from_pylist(list(_spans(trace)), schema=SPANS),
        "phases": pa.Table.from_pylist(list(_phases(trace)), schema=PHASES),
        "windows": _windows(trace),
        "samples": pa.Table.from_pylist(list(_samples(trace)), schema=SAMPLES),
        "counts": pa.Table.from_pylist(list(_counts(trace)), schema=COUNTS),
        "memory": _memory(trace),
        "calls": _calls(trace),
    }
    for name, table in tables.items():
        csv.write_csv(table, str(path / f"{name}.csv"))


def _schema(words: str, whole: str, real: str, after: str = "") -> pa.Schema:
    """Make a schema: names of text, whole-number and real columns, then of text again."""
    kinds = ((words, pa.string()), (whole, pa.int64()), (real, pa.float64()), (after, pa.string()))
    return pa.schema([("pid", pa.int64()), *((name, kind) for names, kind in kinds for name in names.split())])


SPANS = _schema(
    "process thread path name kind phase",
    "calls cpu_memory_bytes gpu_memory_bytes",
    "total_s self_s min_s max_s p50_s p95_s cpu_s device_s",
)
PHASES = _schema("process thread phase group", "calls", "self_s share")
SAMPLES = _schema("process thread path phase function file", "line n", "wall_s cpu_s", "text stack")
COUNTS = _schema("process thread path counter", "amount", "")


def _threads(trace: Trace) -> Iterator[tuple[Row, Process, Thread]]:
    for process in trace.processes:
        for thread in process.threads:
            yield {"pid": process.pid, "process": process.name, "thread": thread.name}, process, thread


def _spans(trace: Trace) -> Iterator[Row]:
    for who, _, thread in _threads(trace):
        for node in thread.nodes:
            yield who | _span(node, thread)


def _span(node: Node, thread: Thread) -> Row:
    times = {f"{name}_s": getattr(node, f"{name}_ns") / 1e9 for name in ("total", "self", "min", "max", "p50", "p95")}
    return times | {
        "path": JOIN.join(thread.path(node)), "name": node.name, "kind": node.kind, "phase": str(node.phase),
        "calls": node.calls, "cpu_s": node.cpu_ns / 1e9, "device_s": node.device_ns / 1e9,
        "cpu_memory_bytes": node.cpu_memory_bytes, "gpu_memory_bytes": node.gpu_memory_bytes,
    }  # fmt: skip


def _phases(trace: Trace) -> Iterator[Row]:
    for who, _, thread in _threads(trace):
        for row in thread_phases(thread):
            yield who | {
                "phase": row.phase, "group": row.group, "calls": row.calls, "self_s": row.self_s, "share": row.share,
            }  # fmt: skip


def _samples(trace: Trace) -> Iterator[Row]:
    for who, _, thread in _threads(trace):
        for sample in thread.samples:
            node = thread.by_id[sample.node]
            inner = sample.stack[0] if sample.stack else None
            yield who | {
                "path": JOIN.join(thread.path(node)), "phase": str(node.phase),
                "function": inner.function if inner else "", "file": inner.file if inner else "",
                "line": inner.line if inner else None, "text": inner.text if inner else "",
                "n": sample.n, "wall_s": sample.wall_ns / 1e9, "cpu_s": sample.cpu_ns / 1e9,
                "stack": JOIN.join(f"{f.function} ({f.file}:{f.line})" for f in reversed(sample.stack)),
            }  # fmt: skip


def _counts(trace: Trace) -> Iterator[Row]:
    """Yield counters by the place they were counted at; what belongs to no place has no path. Sums are totals."""
    for process in trace.processes:
        left = dict(process.counts)
        for who, owner, thread in _threads(trace):
            if owner is not process:
                continue
            for node in thread.nodes:
                for counter, amount in node.counts.items():
                    left[counter] = left.get(counter, 0) - amount
                    yield who | {"path": JOIN.join(thread.path(node)), "counter": counter, "amount": amount}
        for counter, amount in left.items():
            if amount:
                yield {"pid": process.pid, "process": process.name, "thread": "", "path": "", "counter": counter,
                       "amount": amount}  # fmt: skip


def _windows(trace: Trace) -> pa.Table:
    """One row a window; a column for each counter, and `phase_..._s` of the main thread for each phase."""
    parts = []
    for process in trace.processes:
        windows, size = process.windows, len(process.windows.start_ns)
        columns: Row = {
            "pid": np.full(size, process.pid),
            "process": [process.name] * size,
            "window": np.arange(size),
            "start_s": (windows.start_ns - trace.loop_start_ns) / 1e9,
            "end_s": (windows.end_ns - trace.loop_start_ns) / 1e9,
            "in_loop": windows.in_loop,
        }
        columns |= {f"phase_{phase}_s": ns / 1e9 for phase, ns in windows.phase_self_ns.items()}
        columns |= {name: amounts for name, amounts in windows.counts.items() if name not in columns}
        parts.append(pa.table(columns))
    return pa.concat_tables(parts, promote_options="default")


def _memory(trace: Trace) -> pa.Table:
    parts = []
    for process in trace.processes:
        memory = process.memory
        parts.append(
            pa.table({
                "pid": np.full(len(memory.at_ns), process.pid),
                "process": pa.array([process.name] * len(memory.at_ns), pa.string()),
                "at_s": (memory.at_ns - trace.loop_start_ns) / 1e9,
                "rss_bytes": memory.rss_bytes,
                "gpu_bytes": memory.gpu_bytes,
                # What the machine does not tell is -1 in a run, and empty here.
                "gpu_busy_percent": pa.array(memory.gpu_busy_percent, mask=memory.gpu_busy_percent < 0),
            })
        )  # fmt: skip
    return pa.concat_tables(parts)


def _calls(trace: Trace) -> pa.Table:
    """Single calls, of the windows in which they were kept."""
    parts = []
    for stream in read_streams(trace):
        size, nodes = len(stream.call_node), np.unique(stream.call_node)
        place = np.searchsorted(nodes, stream.call_node)
        paths = [JOIN.join(stream.path(node)) for node in nodes.tolist()]
        phases = [str(stream.places[node].phase) if node in stream.places else "" for node in nodes.tolist()]
        parts.append(
            pa.table({
                "pid": np.full(size, stream.pid),
                "thread": pa.array([stream.thread] * size, pa.string()),
                "path": pa.array(paths, pa.string()).take(pa.array(place)),
                "phase": pa.array(phases, pa.string()).take(pa.array(place)),
                "start_s": (stream.call_start_ns - trace.loop_start_ns) / 1e9,
                "end_s": (stream.call_end_ns - trace.loop_start_ns) / 1e9,
            })
        )  # fmt: skip
    empty = pa.schema([("pid", pa.int64()), ("thread", pa.string()), ("path", pa.string()), ("phase", pa.string()),
                       ("start_s", pa.float64()), ("end_s", pa.float64())])  # fmt: skip
    return pa.concat_tables([empty.empty_table(), *parts])
