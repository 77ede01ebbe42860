"""What a run's files hold beyond its `Trace`: single calls, and each node's time in each window.

A `Trace` keeps neither, because no rule needs them and they are the bulk of a run. Exports do. A trace that was not
read from a run directory has none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.spans import Phase
from hotloop.trace import store
from hotloop.trace.model import Trace

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
    folders = [(path.parent, _read_json(path)) for path in sorted(Path(trace.path).glob("*/process.json"))]
    main = next((each for _, each in folders if each.get("main")), None)
    if main is None:
        return []
    known = {process.pid for process in trace.processes}
    return [
        stream
        for folder, process in folders
        if process.get("pid") in known
        for stream in _read_process(folder, process["pid"], _shift_ns(main, process), trace)
    ]


def wall_clock_offset_ns(trace: Trace) -> int:
    """Return what to add to the run's clock to get Unix time."""
    for path in sorted(Path(trace.path).glob("*/process.json")):
        process = _read_json(path)
        if process.get("main"):
            return int(process["wall_ns"]) - int(process["clock_ns"])
    return int(trace.manifest.get("started_unix_ns", 0)) - (trace.loop_start_ns - trace.startup_ns)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _shift_ns(main: dict[str, Any], other: dict[str, Any]) -> int:
    """As `load` has it: a later process whose clock shows less has a clock of its own."""
    if other["clock_ns"] >= main["clock_ns"]:
        return 0
    return (other["wall_ns"] - other["clock_ns"]) - (main["wall_ns"] - main["clock_ns"])


def _read_process(folder: Path, pid: int, shift_ns: int, trace: Trace) -> list[ThreadStream]:
    names = store.read_names(folder)
    raw, windows, memory = (store.read_table(folder, table) for table in ("raw", "windows", "memory"))
    order = np.argsort(memory["window"], kind="stable")
    numbers = memory["window"][order]
    starts, ends = memory["start_ns"][order] + shift_ns, memory["end_ns"][order] + shift_ns
    middles = (starts + ends) // 2
    in_loop = (middles >= trace.loop_start_ns) & (middles < trace.loop_end_ns) & (ends > trace.loop_start_ns)
    found = []
    for entry in (each for each in names if each["is"] == "thread"):
        calls = raw["thread"] == entry["id"]
        start, end = raw["start_ns"][calls] + shift_ns, raw["end_ns"][calls] + shift_ns
        by_start = np.lexsort((-end, start))
        rows = (windows["thread"] == entry["id"]) & np.isin(windows["window"], numbers)
        if not calls.any() and not rows.any():
            continue
        found.append(
            ThreadStream(
                pid=pid, thread=entry["name"], ident=entry["ident"], main=entry["main"],
                places=_places(names, entry["id"]),
                call_node=raw["node"][calls][by_start], call_start_ns=start[by_start], call_end_ns=end[by_start],
                window=np.searchsorted(numbers, windows["window"][rows]),
                node=windows["node"][rows], calls=windows["calls"][rows], self_ns=windows["self_ns"][rows],
                window_start_ns=starts, window_end_ns=ends, in_loop=in_loop,
            )
        )  # fmt: skip
    return found


def _places(names: list[dict[str, Any]], thread: int) -> dict[int, Place]:
    return {e["id"]: _place(e) for e in names if e["is"] == "node" and e["thread"] == thread}


def _place(entry: dict[str, Any]) -> Place:
    if entry["kind"] == "gap":
        before, after = (each["name"] if each else "·" for each in (entry.get("before"), entry.get("after")))
        return Place(entry["parent"], f"({before} → {after})", Phase.OTHER, bool(entry.get("dark")))
    return Place(entry["parent"], entry.get("name", "(thread)"), Phase(entry.get("phase") or Phase.OTHER), False)
