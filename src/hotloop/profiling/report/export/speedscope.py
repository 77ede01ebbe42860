"""Flame graphs for speedscope: one profile per thread, from the sampled stacks, weighted by time.

Below the innermost line is the span that was open, so that time in native code has a name as well. Samples are summed
over the loop, which loses their order in time: use the views "Left Heavy" or "Sandwich".
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hotloop.escaping import json_text
from hotloop.json_types import JsonObject
from hotloop.profiling.report.export.target import open_text
from hotloop.profiling.report.view import Report
from hotloop.profiling.trace.model import Process, Sample, Thread, Trace

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
Key = tuple[str, str, int]


def write(report: Report, trace: Trace, path: Path) -> None:
    """Write the flame graphs of a run."""
    frames: dict[Key, int] = {}
    profiles = [
        _profile(process, thread, frames)
        for process in trace.processes
        for thread in process.threads
        if any(sample.wall_ns for sample in thread.samples)
    ]
    content = {
        "$schema": SCHEMA,
        "name": report.name,
        "exporter": f"hotloop@{_version()}",
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(key) for key in frames]},
        "profiles": profiles or [_empty_profile()],
    }
    with open_text(path) as file:
        file.write(json_text(content, compact=True))


def _profile(process: Process, thread: Thread, frames: dict[Key, int]) -> JsonObject:
    found: dict[tuple[int, ...], int] = {}
    for sample in thread.samples:
        stack = tuple(frames.setdefault(key, len(frames)) for key in _stack(sample, thread))
        if sample.wall_ns and stack:
            found[stack] = found.get(stack, 0) + sample.wall_ns
    # Sorted, because adjacent samples with the same callers are drawn as one box.
    stacks = sorted(found)
    return {
        "type": "sampled",
        "name": thread.name if process.main else f"{process.name} ({process.pid}): {thread.name}",
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": sum(found.values()),
        "samples": [list(stack) for stack in stacks],
        "weights": [found[stack] for stack in stacks],
    }


def _stack(sample: Sample, thread: Thread) -> list[Key]:
    """Return the frames of a sample, outermost first, and the span or gap as the innermost."""
    stack: list[Key] = [(frame.function, frame.file, frame.line) for frame in reversed(sample.stack)]
    node = thread.by_id[sample.node]
    return [*stack, (f"[{node.phase}] {node.name}", "", 0)] if node.kind != "root" or not stack else stack


def _frame(key: Key) -> JsonObject:
    name, file, line = key
    return {"name": name, "file": file, "line": line} if file else {"name": name}


def _empty_profile() -> JsonObject:
    """Return a profile for a run without samples: the format requires at least one."""
    empty: JsonObject = {"samples": [], "weights": []}
    return {"type": "sampled", "name": "no samples", "unit": "nanoseconds", "startValue": 0, "endValue": 0} | empty


def _version() -> str:
    try:
        return version("hotloop")
    except PackageNotFoundError:
        return "0"
