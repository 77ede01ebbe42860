"""What a run is, once read: frozen data that every rule and every report works on. No torch, no file access.

Times are nanoseconds of the shared monotonic clock. Everything here is already corrected: for what the spans
themselves cost, and for calls that were counted but not timed. The tables cover the *loop*: the time from the
first environment step to the last window with a step or an update, or the whole run where no step was counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from hotloop.phases import Phase
from hotloop.profiling.trace.deep import NOTHING as NOTHING_TRACED
from hotloop.profiling.trace.deep import Traced
from hotloop.profiling.trace.notebook_display import html_of
from hotloop.profiling.trace.printed_timings import NOTHING as NOTHING_CLAIMED
from hotloop.profiling.trace.printed_timings import Claims

if TYPE_CHECKING:
    from hotloop.profiling.trace.reading.names import NodeName

FORMAT_VERSION = 1
State = Literal["running", "finished", "failed", "interrupted", "killed", "ended", "unknown"]
"""Failed: by an error or with an exit code above 0. Interrupted: by Ctrl-C. Killed: without writing its end. Ended: it
tried to write its end and could not, as on a full disk. Unknown: recorded on another machine or in another container,
where it may still be running."""
UNENDED: dict[State, str] = {
    "running": "the run is still going: this is what it has written so far",
    "killed": "the run was killed: what it did in its last second is missing",
    "ended": "the run could not write its end, as on a full disk: what came last is missing",
    "unknown": "the run has not written its end: it is running on another machine or container, or was killed",
}
"""Why a run in this state is incomplete."""
Kind = Literal["root", "span", "gap"]
PART = 1 << 32
"""More than any id that is recorded."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of Python in a sampled stack."""

    function: str
    file: str
    line: int
    text: str
    """The source line, stripped, kept in the trace so that it can be read on another machine."""
    own: bool
    """Whether it is the user's own code rather than a library's."""


@dataclass(frozen=True, slots=True)
class Sample:
    """All moments at which one thread was seen with one stack, inside one node of its call tree."""

    node: int
    stack: tuple[Frame, ...]
    """Innermost first."""
    n: int
    wall_ns: int
    cpu_ns: int
    """How much of it the thread was computing rather than waiting."""


@dataclass(frozen=True, slots=True)
class Node:
    """A place in a thread's call tree, with all that was measured there.

    `kind` is "root" (the thread itself; its self time is unattributed), "span", or "gap": time between
    two spans of a container, whose phase follows from its neighbours and from the stacks seen there.
    """

    id: int
    """As recorded; of a further part of a gap, with a multiple of `PART` added."""
    parent: int
    """Id of the parent, -1 for the root."""
    name: str
    phase: Phase
    kind: Kind
    calls: int
    total_ns: int
    self_ns: int
    min_ns: int
    max_ns: int
    p50_ns: int
    p95_ns: int
    cpu_ns: int
    """CPU time of the thread while this node was the innermost (from samples)."""
    cpu_memory_bytes: int
    """Growth of resident memory seen while this node was the innermost."""
    cpu_peak_bytes: int
    gpu_memory_bytes: int
    device_ns: int
    counts: Mapping[str, int] = field(default_factory=dict)
    """Counters added to while this node was the innermost: env_steps, host_syncs.item, replay_bytes, ..."""

    @property
    def mean_ns(self) -> float:
        """Total time of a call, on average."""
        return self.total_ns / self.calls if self.calls else 0.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """A node in one stretch of the loop, as recorded: only calls that were timed have a time."""

    timed: int
    """Calls that were timed. Of a gap: of the span before it."""
    self_ns: int
    calls: float
    """All calls."""


@dataclass(frozen=True)
class Thread:
    """One thread of one process."""

    name: str
    ident: int
    main: bool
    nodes: tuple[Node, ...]
    """The root is first; a parent comes before its children."""
    samples: tuple[Sample, ...]
    wall_ns: int
    cpu_ns: int
    stretches: tuple[Mapping[int, Stretch], ...] = ()
    """What was timed in each of the stretches into which `trace.drift.cut` cuts the loop, by node; main thread only."""

    @cached_property
    def by_id(self) -> dict[int, Node]:
        """Node by id."""
        return {node.id: node for node in self.nodes}

    @cached_property
    def parts(self) -> dict[int, list[Node]]:
        """The nodes that were recorded as one, by its id: a gap in which lines of several phases were seen is many."""
        found: dict[int, list[Node]] = {}
        for node in self.nodes:
            found.setdefault(node.id % PART, []).append(node)
        return found

    def recorded_ns(self, number: int) -> int:
        """Self time of all that was recorded as one node."""
        return sum(node.self_ns for node in self.parts.get(number, ()))

    @cached_property
    def phase_shares(self) -> dict[int, list[tuple[Phase, float]]]:
        """How the time of what was recorded as one node is divided among phases, by its id."""
        found: dict[int, list[tuple[Phase, float]]] = {}
        for number, parts in self.parts.items():
            whole = self.recorded_ns(number)
            found[number] = [(each.phase, each.self_ns / whole if whole else 1.0 / len(parts)) for each in parts]
        return found

    @cached_property
    def children(self) -> dict[int, list[Node]]:
        """The children of each node, by the parent's id."""
        found: dict[int, list[Node]] = {}
        for node in self.nodes:
            found.setdefault(node.parent, []).append(node)
        return found

    def path(self, node: Node) -> tuple[str, ...]:
        """Names from below the root down to the node."""
        names: list[str] = []
        while node.parent >= 0:
            names.append(node.name)
            node = self.by_id[node.parent]
        return tuple(reversed(names))

    def subtree(self, node: Node) -> list[Node]:
        """The node and everything below it."""
        found = [node]
        for each in found:
            found.extend(self.children.get(each.id, ()))
        return found


@dataclass(frozen=True, eq=False)
class RecordedThread:
    """A thread as recorded, window by window and without corrections, start-up included. Only exports need it.

    The arrays have one row per window and node.
    """

    id: int
    """Number of the thread in the files of its process."""
    name: str
    ident: int
    main: bool
    nodes: Mapping[int, NodeName]
    window: NDArray[np.int64]
    """Row of `Windows`."""
    node: NDArray[np.int64]
    calls: NDArray[np.int64]
    self_ns: NDArray[np.int64]


@dataclass(frozen=True)
class Windows:
    """What happened when, in the main thread: one row a window (1 s at first, longer in long runs)."""

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    counts: Mapping[str, NDArray[np.int64]]
    """Counter name to its amount in each window."""
    phase_self_ns: Mapping[Phase, NDArray[np.int64]]
    in_loop: NDArray[np.bool_]


@dataclass(frozen=True)
class Memory:
    """Memory over time."""

    at_ns: NDArray[np.int64]
    rss_bytes: NDArray[np.int64]
    gpu_bytes: NDArray[np.int64]
    gpu_busy_percent: NDArray[np.int64]
    reserved_bytes: NDArray[np.int64]
    """Asked for of the system, resident or not; all zero in recordings of an earlier version."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """What recording cost, as calibrated in place."""

    span_ns: float
    span_low_ns: float
    span_high_ns: float
    spans_timed: int
    spans_counted: int
    background_cpu_ns: int
    share: float
    """All of it, as a share of wall time."""
    taken_share: float = 0.0
    """The part of it that spans and wrappers took, where it is known whose time it was: subtracted from the tables. The
    rest (sampling, writing, counters) falls on all parts alike and is in them."""


@dataclass(frozen=True)
class Process:
    """One process of the run."""

    pid: int
    parent_pid: int
    name: str
    main: bool
    start_ns: int
    end_ns: int
    threads: tuple[Thread, ...]
    windows: Windows
    memory: Memory
    overhead: Overhead
    counts: Mapping[str, int]
    """All counters over the loop, including `gc_pauses`, `gc_pause_ns`, `page_faults_minor`, `page_faults_major`,
    `cpu_ns`, and `starved_ns`: how long the main thread was ready to run and had no core."""
    state: State
    warnings: tuple[str, ...]
    folder: str = ""
    """Name of its folder in the run directory; empty if the trace was not read from one."""
    shift_ns: int = 0
    """Offset that was added to its clock to get the main process's clock."""
    recorded: tuple[RecordedThread, ...] = ()

    @cached_property
    def main_thread(self) -> Thread:
        """The process's main thread."""
        return next(thread for thread in self.threads if thread.main)


@dataclass(frozen=True)
class Trace:
    """A recorded run."""

    path: str
    name: str
    manifest: Mapping[str, Any]
    """run.json: format, command, machine, versions, configuration, started. What `records.Manifest` has is checked."""
    processes: tuple[Process, ...]
    """The main process is first."""
    state: State
    warnings: tuple[str, ...]
    loop_start_ns: int
    loop_end_ns: int
    startup_ns: int
    """From the start of recording to the first environment step."""
    paused_ns: int = 0
    """Time of the loop that closer looks took: it is in no table but theirs."""
    traced: Traced = NOTHING_TRACED
    """What these looks saw."""
    claimed: Claims = NOTHING_CLAIMED
    """What the script printed of its own speed."""
    counts_before: Mapping[str, int] = field(default_factory=dict)
    """Counts of the training that this run resumes, by counter; empty if it resumes none."""
    missing: tuple[str, ...] = ()
    """What could not be recorded or read, one reason each."""
    unix_offset_ns: int | None = None
    """What to add to the run's clock to get Unix time, if it is known."""

    @property
    def main(self) -> Process:
        """The process that was started by the user."""
        return self.processes[0]

    @property
    def why_incomplete(self) -> tuple[str, ...]:
        """Why these are not the numbers of a whole run; empty if they are."""
        return (*((UNENDED[self.state],) if self.state in UNENDED else ()), *self.missing)

    @property
    def thread(self) -> Thread:
        """The main thread of the main process: whose phases and shares are the run's."""
        return self.main.main_thread

    @property
    def wall_s(self) -> float:
        """Length of the loop in seconds, closer looks not counted."""
        return (self.loop_end_ns - self.loop_start_ns - self.paused_ns) / 1e9

    def __repr__(self) -> str:
        return f"<Trace {self.path!r}, {self.state}, {self.wall_s:.1f} s, {len(self.processes)} process(es)>"

    def _repr_html_(self) -> str | None:
        """Show the run in a notebook."""
        return html_of(self)
