"""A run as CSV files, one per table, for pandas, polars, DuckDB or a spreadsheet.

Every table covers all processes and threads. Times are seconds; points in time are seconds since the start of the loop,
negative before it. Paths are names joined by " > ". Names are escaped by `escaping.csv_cell`, because a spreadsheet
evaluates a cell that begins with "=".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from hotloop.escaping import csv_cell
from hotloop.profiling.report.view import Report
from hotloop.profiling.trace.model import Process, Thread, Trace
from hotloop.profiling.trace.reading.call_streams import read_streams

JOIN = " > "
CLOSER_LOOK = "(closer look)"
"""Path of counts made during deep profiling (--functions, --ops), when recording is paused."""
PART_ROWS = 20_000
LONGEST_PATH = 1_000
Row = dict[str, str | int | float | None]


def write(report: Report, trace: Trace, path: Path) -> None:
    """Write the tables into a new folder."""
    path.mkdir()
    for name, rows, schema in (
        ("spans", _spans(trace), SPANS),
        ("phases", _phases(report, trace), PHASES),
        ("samples", _samples(trace), SAMPLES),
        ("counts", _counts(trace), COUNTS),
    ):
        # With long paths, all rows may not fit into memory.
        parts = iter(lambda rows=rows: list(islice(rows, PART_ROWS)), [])
        _write(path / f"{name}.csv", schema, (_table(part, schema) for part in parts))
    for name, table in (("windows", _windows(trace)), ("memory", _memory(trace))):
        _write(path / f"{name}.csv", table.schema, [table])
    _write(path / "calls.csv", CALLS, _calls(trace))


def _write(path: Path, schema: pa.Schema, parts: Iterable[pa.Table]) -> None:
    # Python opens the file: pyarrow cannot encode a path that is not UTF-8.
    with open(path, "wb") as file, csv.CSVWriter(file, schema) as writer:
        for part in parts:
            writer.write_table(part)


def _table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    cells = [{name: csv_cell(cell) if isinstance(cell, str) else cell for name, cell in row.items()} for row in rows]
    return pa.Table.from_pylist(cells, schema=schema)


def _same(text: str, rows: int) -> pa.Array:
    """Return a column with the same text in all rows."""
    return pa.array([csv_cell(text)] * rows, pa.string())


def _schema(texts: str, integers: str, floats: str, more_texts: str = "") -> pa.Schema:
    """Return a schema from names of text, integer and float columns, then of further text columns."""
    kinds = ((texts, pa.string()), (integers, pa.int64()), (floats, pa.float64()), (more_texts, pa.string()))
    return pa.schema([("pid", pa.int64()), *((name, kind) for names, kind in kinds for name in names.split())])


SPANS = _schema(
    "process thread path name kind phase",
    "calls cpu_memory_bytes gpu_memory_bytes",
    "total_s self_s min_s max_s p50_s p95_s cpu_s device_s",
)
PHASES = _schema("process thread phase group", "calls", "self_s share")
SAMPLES = _schema("process thread path phase function file", "line n", "wall_s cpu_s", "text stack")
COUNTS = _schema("process thread path counter", "amount", "")
CALLS = _schema("thread path phase", "", "start_s end_s")


def _joined(names: Iterable[str]) -> str:
    """Return a path as text; of a very long one, only the end."""
    text = JOIN.join(names)
    return text if len(text) <= LONGEST_PATH else "…" + text[1 - LONGEST_PATH :]


def _paths(thread: Thread) -> dict[int, str]:
    """Return the path of each node as text."""
    return {node.id: _joined(thread.path(node)) for node in thread.nodes}


def _threads(trace: Trace) -> Iterator[tuple[Row, Thread]]:
    for process in trace.processes:
        for thread in process.threads:
            yield {"pid": process.pid, "process": process.name, "thread": thread.name}, thread


def _spans(trace: Trace) -> Iterator[Row]:
    for owner, thread in _threads(trace):
        paths = _paths(thread)
        for node in thread.nodes:
            times = ("total", "self", "min", "max", "p50", "p95", "cpu", "device")
            amounts = ("calls", "cpu_memory_bytes", "gpu_memory_bytes")
            row: Row = {"path": paths[node.id], "name": node.name, "kind": node.kind, "phase": str(node.phase)}
            row |= {name: getattr(node, name) for name in amounts}
            yield owner | row | {f"{name}_s": getattr(node, f"{name}_ns") / 1e9 for name in times}


def _phases(report: Report, trace: Trace) -> Iterator[Row]:
    others = [(each.pid, each.name, thread.name, thread.phases) for each in report.processes for thread in each.threads]
    for pid, process, thread, rows in [(trace.main.pid, trace.main.name, trace.thread.name, report.phases), *others]:
        for row in rows:
            yield {"pid": pid, "process": process, "thread": thread} | asdict(row)


def _samples(trace: Trace) -> Iterator[Row]:
    for owner, thread in _threads(trace):
        paths = _paths(thread)
        stacks: dict[int, str] = {}
        for sample in thread.samples:
            node = thread.by_id[sample.node]
            if id(sample.stack) not in stacks:
                frames = (f"{each.function} ({each.file}:{each.line})" for each in reversed(sample.stack))
                stacks[id(sample.stack)] = _joined(frames)
            inner = sample.stack[0] if sample.stack else None
            yield owner | {
                "path": paths[node.id],
                "phase": str(node.phase),
                "function": inner.function if inner else "",
                "file": inner.file if inner else "",
                "line": inner.line if inner else None,
                "text": inner.text if inner else "",
                "n": sample.n,
                "wall_s": sample.wall_ns / 1e9,
                "cpu_s": sample.cpu_ns / 1e9,
                "stack": stacks[id(sample.stack)],
            }


def _counts(trace: Trace) -> Iterator[Row]:
    """Yield counts by place in the call tree. Counts without a place have an empty path. The sums are the totals."""
    for process in trace.processes:
        left = dict(process.counts)
        for thread in process.threads:
            paths = _paths(thread)
            for node in thread.nodes:
                for counter, amount in node.counts.items():
                    left[counter] = left.get(counter, 0) - amount
                    yield _count(process, thread.name, paths[node.id], counter, amount)
        for counter, amount in left.items():
            if amount:
                yield _count(process, "", "", counter, amount)
    for counter, amount in trace.traced.counts.items():
        if amount:
            yield _count(trace.main, "", CLOSER_LOOK, counter, amount)


def _count(process: Process, thread: str, path: str, counter: str, amount: int) -> Row:
    owner: Row = {"pid": process.pid, "process": process.name, "thread": thread}
    return owner | {"path": path, "counter": counter, "amount": amount}


def _windows(trace: Trace) -> pa.Table:
    """Return one row per window, with a column per counter and a column `phase_..._s` per phase of the main thread."""
    parts = []
    for process in trace.processes:
        windows, size = process.windows, len(process.windows.start_ns)
        columns = {
            "pid": np.full(size, process.pid),
            "process": _same(process.name, size),
            "window": np.arange(size),
            "start_s": (windows.start_ns - trace.loop_start_ns) / 1e9,
            "end_s": (windows.end_ns - trace.loop_start_ns) / 1e9,
            "in_loop": windows.in_loop,
        }
        columns |= {f"phase_{phase}_s": ns / 1e9 for phase, ns in windows.phase_self_ns.items()}
        counts = {csv_cell(name): amounts for name, amounts in windows.counts.items()}
        columns |= {name: amounts for name, amounts in counts.items() if name not in columns}
        parts.append(pa.table(columns))
    return pa.concat_tables(parts, promote_options="default")


def _memory(trace: Trace) -> pa.Table:
    parts = []
    for process in trace.processes:
        memory = process.memory
        parts.append(
            pa.table(
                {
                    "pid": np.full(len(memory.at_ns), process.pid),
                    "process": _same(process.name, len(memory.at_ns)),
                    "at_s": (memory.at_ns - trace.loop_start_ns) / 1e9,
                    "rss_bytes": memory.rss_bytes,
                    "gpu_bytes": memory.gpu_bytes,
                    # -1 in a run means that the machine does not report it.
                    "gpu_busy_percent": pa.array(memory.gpu_busy_percent, mask=memory.gpu_busy_percent < 0),
                }
            )
        )
    return pa.concat_tables(parts)


def _calls(trace: Trace) -> Iterator[pa.Table]:
    """Yield single calls, in parts. Only some windows keep them."""
    for stream in read_streams(trace):
        nodes = np.unique(stream.call_node).tolist()
        paths = pa.array([csv_cell(_joined(stream.path(node))) for node in nodes], pa.string())
        phases = [str(stream.phase(node)) if node in stream.thread.nodes else "" for node in nodes]
        for first in range(0, len(stream.call_node), PART_ROWS):
            part = slice(first, first + PART_ROWS)
            place = pa.array(np.searchsorted(nodes, stream.call_node[part]))
            size = len(place)
            yield pa.table(
                {
                    "pid": np.full(size, stream.process.pid),
                    "thread": _same(stream.thread.name, size),
                    "path": paths.take(place),
                    "phase": pa.array(phases, pa.string()).take(place),
                    "start_s": (stream.call_start_ns[part] - trace.loop_start_ns) / 1e9,
                    "end_s": (stream.call_end_ns[part] - trace.loop_start_ns) / 1e9,
                },
                schema=CALLS,
            )
