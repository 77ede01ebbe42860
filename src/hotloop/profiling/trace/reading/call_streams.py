"""Threads with their single calls, for exports.

A `Trace` does not keep single calls: no rule needs them, and they are the bulk of a run. Everything else here comes
from the trace. A trace that was not read from a run directory has no streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hotloop.phases import Phase
from hotloop.profiling.trace.build.columns import Ints, grouped, none_of
from hotloop.profiling.trace.model import Process, RecordedThread, Trace
from hotloop.profiling.trace.reading.open_files import Budget
from hotloop.profiling.trace.reading.run_files import read_table


@dataclass(frozen=True, eq=False)
class ThreadStream:
    """A recorded thread and its single calls."""

    process: Process
    thread: RecordedThread
    call_node: Ints
    call_start_ns: Ints
    """Ascending; of calls that start together, the longest is first. On the main process's clock."""
    call_end_ns: Ints

    def path(self, node: int) -> tuple[str, ...]:
        """Return the names from below the root down to the node."""
        names: list[str] = []
        nodes = self.thread.nodes
        while node in nodes and nodes[node].parent >= 0:
            names.append(nodes[node].label)
            node = nodes[node].parent
        return tuple(reversed(names))

    def phase(self, node: int) -> Phase:
        """Return the phase of a span; `OTHER` for a gap, whose phase only the trace knows."""
        known = self.thread.nodes[node]
        return known.phase if known.kind == "span" and known.phase else Phase.OTHER


def read_streams(trace: Trace) -> list[ThreadStream]:
    """Return the threads of a run with their single calls."""
    budget = Budget()
    return [stream for process in trace.processes for stream in _read_process(Path(trace.path), process, budget)]


def wall_clock_offset_ns(trace: Trace) -> int:
    """Return the offset from the run's clock to Unix time."""
    if trace.unix_offset_ns is not None:
        return trace.unix_offset_ns
    return trace.settings.started_unix_ns - (trace.loop_start_ns - trace.startup_ns)


def _read_process(run: Path, process: Process, budget: Budget) -> list[ThreadStream]:
    if not process.folder:
        return []
    raw, _ = read_table(run / process.folder, "raw", False, budget)
    by_thread = grouped(raw, "thread")
    found = []
    for thread in process.recorded:
        calls = by_thread.get(thread.id, none_of(raw))
        if len(calls["node"]) or len(thread.node):
            start_ns, end_ns = calls["start_ns"] + process.shift_ns, calls["end_ns"] + process.shift_ns
            order = np.lexsort((-end_ns, start_ns))
            found.append(ThreadStream(process, thread, calls["node"][order], start_ns[order], end_ns[order]))
    return found
