"""A timeline as trace events in JSON, the one format that ui.perfetto.dev and chrome://tracing both open.

Every thread has a track of its single calls, in the windows that kept them, and a track "by window" for the whole run.
There each window shows its call tree, as wide as the time it took, in the order of the tree rather than of time. Rates
and memory are counters. Times are microseconds since the start of the recording.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path

import numpy as np

from hotloop.counters import COUNTERS
from hotloop.escaping import json_text
from hotloop.json_types import Json, JsonObject
from hotloop.profiling.report.export.target import open_text
from hotloop.profiling.report.export.windows import Slice, window_slices
from hotloop.profiling.report.view import Report
from hotloop.profiling.trace.model import Process, Trace
from hotloop.profiling.trace.reading.call_streams import ThreadStream, read_streams

FIRST_TID = 5_000_000
"""Above any process id: viewers require unique ids, and take the thread whose id is its process's for the main one."""
MOST_SLICES = 1_000_000
"""On the tracks "by window", over all threads. Viewers cannot open more."""
LONGEST_NAME = 200


def write(report: Report, trace: Trace, path: Path) -> None:
    """Write the timeline of a run."""
    streams = read_streams(trace)
    starts = [process.start_ns for process in trace.processes]
    starts += [int(each.call_start_ns[0]) for each in streams if len(each.call_start_ns)]
    about = {"run": report.name, "state": report.state, "command": " ".join(map(str, report.command))}
    about |= {"written by": "hotloop"} | {name: str(getattr(report.counts, name)) for name in COUNTERS}
    with open_text(path) as file:
        file.write(f'{{"displayTimeUnit":"ms","otherData":{_dumps(about)},"traceEvents":[')
        between = "\n"
        for event in _events(report, trace, streams, min(starts)):
            file.write(between + event)
            between = ",\n"
        file.write("\n]}\n")


def _events(report: Report, trace: Trace, streams: list[ThreadStream], base_ns: int) -> Iterator[str]:
    for i, process in enumerate(trace.processes):
        name = trace.name if process.main else process.name
        yield _metadata("process_name", process.pid, 0, {"name": name})
        yield _metadata("process_sort_index", process.pid, 0, {"sort_index": i})
        yield from _memory(process, base_ns)
    yield from _rates(report, trace, base_ns)
    threads = {(p.pid, t.name, t.ident): t for p in trace.processes for t in p.threads}
    tid = FIRST_TID
    slices = count()
    for stream in streams:
        known = threads.get((stream.process.pid, stream.thread.name, stream.thread.ident))
        mine = stream.process.pid if stream.thread.main else tid
        for each, label in ((mine, stream.thread.name), (tid + 1, f"{stream.thread.name}, by window")):
            yield _metadata("thread_name", stream.process.pid, each, {"name": label})
            order = 2 * (tid - FIRST_TID) + (each != mine)
            yield _metadata("thread_sort_index", stream.process.pid, each, {"sort_index": order})
        yield from _calls(stream, mine, base_ns)
        for each in takewhile(lambda _: next(slices) < MOST_SLICES, window_slices(stream, known)):
            yield _dumps(_slice(each, stream.process.pid, tid + 1, base_ns))
        tid += 2


def _calls(stream: ThreadStream, tid: int, base_ns: int) -> Iterator[str]:
    head = f'{{"ph":"X","pid":{stream.process.pid},"tid":{tid}'
    heads = {
        node: f'{head},"name":{_dumps(_short(each.label))},"cat":"{stream.phase(node)}"'
        for node, each in stream.thread.nodes.items()
    }
    columns = (stream.call_node, stream.call_start_ns - base_ns, stream.call_end_ns - stream.call_start_ns)
    for node, start, length in zip(*(column.tolist() for column in columns), strict=True):
        if node in heads:
            yield f'{heads[node]},"ts":{_us(start)},"dur":{_us(length)}}}'


def _slice(each: Slice, pid: int, tid: int, base_ns: int) -> JsonObject:
    # Whole microseconds: neighbours share an edge here, and must not overlap in a viewer that rounds.
    start, end = (each.start_ns - base_ns) // 1000, (each.end_ns - base_ns) // 1000
    return {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "name": _short(each.name),
        "cat": str(each.phase),
        "ts": start,
        "dur": end - start,
        "args": {"calls": each.calls, "total_ms": each.total_ns / 1e6, "self_ms": each.self_ns / 1e6},
    }


def _rates(report: Report, trace: Trace, base_ns: int) -> Iterator[str]:
    starts = report.timeline.start_ns.tolist()
    for counter, per_s in report.timeline.rates.items():
        if not per_s.any():
            continue
        for start, value in zip(starts, per_s.tolist(), strict=True):
            yield _counter(f"{counter}/s", trace.main.pid, start - base_ns, value)
        # Viewers extend a counter's last value to the end of the timeline, so set it to 0 where the loop ends.
        yield _counter(f"{counter}/s", trace.main.pid, trace.loop_end_ns - base_ns, 0.0)


def _memory(process: Process, base_ns: int) -> Iterator[str]:
    memory = process.memory
    series = (
        ("memory (MB)", memory.rss_bytes / 1e6),
        ("GPU memory (MB)", memory.gpu_bytes / 1e6),
        ("GPU busy (%)", memory.gpu_busy_percent),
    )
    for name, values in series:
        # -1 means that the machine does not report it.
        if np.any(values > 0):
            for at, value in zip(memory.at_ns.tolist(), values.tolist(), strict=True):
                yield _counter(name, process.pid, at - base_ns, value)


def _counter(name: str, pid: int, at_ns: int, value: float) -> str:
    return f'{{"ph":"C","pid":{pid},"tid":0,"name":{_dumps(name)},"ts":{_us(at_ns)},"args":{{"value":{value:.6g}}}}}'


def _metadata(kind: str, pid: int, tid: int, args: JsonObject) -> str:
    return _dumps({"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": args})


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def _us(ns: int) -> str:
    """Return microseconds with all digits; a float would lose the nanoseconds of a long run."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def _dumps(content: Json) -> str:
    return json_text(content, compact=True)
