"""What a run's files hold beyond its `Trace`: single calls, and each node's time in each window.

A `Trace` keeps neither, because no rule needs them and they are the bulk of a run. Exports do. A trace that was not
read from a run directory has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotloop.phases import Phase
from hotloop.profiling.trace import stream_store
from hotloop.profiling.trace.build.columns import grouped, none_of, of_windows
from hotloop.profiling.trace.model import Process, Trace
from hotloop.profiling.trace.reading.names import NodeName, index_names
from hotloop.profiling.trace.reading.open_files import Budget
from hotloop.profiling.trace.reading.run_files import read_table

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Place:
    """A node of a call tree by name, also where it had no time in the loop."""

    parent: int
    name: str
    phase: Phase
    dark: bool
    """Whether it is time in which the spans below its parent were switched off."""


@dataclass(frozen=True)
class ThreadStream:
    """One thread's single calls and windows."""

    pid: int
    thread: str
    ident: int
    main: bool
    places: Mapping[int, Place]
    call_node: Ints
    call_start_ns: Ints
    """Rising; of calls that begin together, the longest is first."""
    call_end_ns: Ints
    window: Ints
    """Row of `window_start_ns`, for each row of the four below."""
    node: Ints
    calls: Ints
    self_ns: Ints
    window_start_ns: Ints
    window_end_ns: Ints
    in_loop: NDArray[np.bool_]
    """Which windows the tables of the trace cover."""

    def path(self, node: int) -> tuple[str, ...]:
        """Names from below the root down to the node."""
        names: list[str] = []
        while node in self.places and self.places[node].parent >= 0:
            names.append(self.places[node].name)
            node = self.places[node].parent
        return tuple(reversed(names))


def read_streams(trace: Trace) -> list[ThreadStream]:
    """Return the threads of a run with their single calls and windows, on the main process's clock."""
    budget = Budget()
    found: list[ThreadStream] = []
    for process in trace.processes:
        if process.folder:
            found += _read_process(Path(trace.path) / process.folder, process, trace, budget)
    return found


def wall_clock_offset_ns(trace: Trace) -> int:
    """Return what to add to the run's clock to get Unix time."""
    if trace.unix_offset_ns is not None:
        return trace.unix_offset_ns
    return int(trace.manifest.get("started_unix_ns", 0)) - (trace.loop_start_ns - trace.startup_ns)


def _read_process(folder: Path, process: Process, trace: Trace, budget: Budget) -> list[ThreadStream]:
    names, _ = index_names(stream_store.read_names(folder, budget)[0])
    raw, windows, memory = (read_table(folder, name, False, budget)[0] for name in ("raw", "windows", "memory"))
    shift_ns = process.shift_ns
    numbers = memory["window"]
    starts, ends = memory["start_ns"] + shift_ns, memory["end_ns"] + shift_ns
    in_loop = np.isin(starts, process.windows.start_ns[process.windows.in_loop])
    calls_of, rows_of = grouped(raw, "thread"), grouped(of_windows(windows, set(numbers.tolist())), "thread")
    found = []
    for entry in names.threads.values():
        if entry.id not in calls_of and entry.id not in rows_of:
            continue
        calls, rows = calls_of.get(entry.id, none_of(raw)), rows_of.get(entry.id, none_of(windows))
        start, end = calls["start_ns"] + shift_ns, calls["end_ns"] + shift_ns
        by_start = np.lexsort((-end, start))
        found.append(
            ThreadStream(
                pid=process.pid, thread=entry.name, ident=entry.ident, main=entry.main,
                places={number: _place(node) for number, node in names.nodes.get(entry.id, {}).items()},
                call_node=calls["node"][by_start], call_start_ns=start[by_start], call_end_ns=end[by_start],
                window=np.searchsorted(numbers, rows["window"]),
                node=rows["node"], calls=rows["calls"], self_ns=rows["self_ns"],
                window_start_ns=starts, window_end_ns=ends, in_loop=in_loop,
            )
        )  # fmt: skip
    return found


def _place(node: NodeName) -> Place:
    phase = node.phase if node.kind == "span" and node.phase else Phase.OTHER
    return Place(node.parent, node.label, phase, node.dark)
