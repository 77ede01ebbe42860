"""A run in memory: frozen data that all rules and reports use. No torch, no file access.

Times are nanoseconds of the shared monotonic clock, corrected for span overhead and for calls that were counted but not
timed. The tables cover the *loop*: from the first environment step to the last window with a step or an update, or the
whole run if no step was counted.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from hotloop.json_types import JsonObject
from hotloop.phases import Phase
from hotloop.profiling.trace.deep import NOTHING as NOTHING_TRACED
from hotloop.profiling.trace.deep import Traced
from hotloop.profiling.trace.observed import Observed
from hotloop.profiling.trace.printed_timings import NOTHING as NOTHING_CLAIMED
from hotloop.profiling.trace.printed_timings import Claims
from hotloop.profiling.trace.reading.decode import decode
from hotloop.profiling.trace.reading.json_schemas import CallsRecord, Machine, Manifest, Torch

if TYPE_CHECKING:
    from hotloop.profiling.trace.reading.names import NodeName
    from hotloop.profiling.trace.source_text import SourceText

FORMAT_VERSION = 1
State = Literal["running", "finished", "failed", "interrupted", "killed", "ended", "unknown"]
"""Failed: by an error or with a non-zero exit code. Interrupted: by Ctrl-C. Killed: without writing its end. Ended: it
could not write its end, for example on a full disk. Unknown: recorded on another machine or in another container, where
it may still be running."""
UNENDED: dict[State, str] = {
    "running": "the run is still going: this is what it has written so far",
    "killed": "the run was killed: what it did in its last second is missing",
    "ended": "the run could not write its end, as on a full disk: what came last is missing",
    "unknown": "the run has not written its end: it is running on another machine or container, or was killed",
}
"""Why a run in this state is incomplete."""
Kind = Literal["root", "span", "gap"]


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
    end_line: int = -1
    column: int = -1
    end_column: int = -1
    """End of the expression that was executing, and its first and last column in UTF-8 bytes; -1 if unknown."""
    operation: str = ""
    """The interpreter's instruction, such as "CALL" or "BINARY_OP"; "" if unknown."""
    first_line: int = 0
    """Where the function begins."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Time that samples stand for, and parts of it, which may overlap."""

    wall_ns: int = 0
    cpu_ns: int = 0
    """The thread used a core."""
    gc_ns: int = 0
    """Python's garbage collector ran."""
    wait_ns: int = 0
    """The thread waited for another thread, process or machine, or slept."""
    io_ns: int = 0
    """The thread waited for a file."""
    starved_ns: int = 0
    """The thread was ready to run but had no core."""


@dataclass(frozen=True, slots=True)
class Sample:
    """All samples of a thread with the same stack in the same node of its call tree."""

    node: int
    stack: tuple[Frame, ...]
    """Innermost first."""
    n: int
    wall_ns: int
    """Their part of the node's self time: 0 for those taken while spans inside the node were switched off."""
    cpu_ns: int
    """The part of `wall_ns` in which the thread used a core."""
    seen: Seen = Seen()
    """As sampled, without the correction to the node's time."""

    @property
    def seen_ns(self) -> int:
        """Time that the samples stand for."""
        return self.seen.wall_ns or self.wall_ns


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a thread's call tree, with its measurements.

    `kind` is "root" (the thread itself), "span", or "gap": time between two spans of a container. Gaps and the root's
    self time are own code: nothing says what phase they are, unless they lie inside an evaluation.
    """

    id: int
    """As recorded."""
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
    """Growth of resident memory while this node was the innermost."""
    cpu_peak_bytes: int
    gpu_memory_bytes: int
    device_ns: int
    counts: Mapping[str, int] = field(default_factory=dict)
    """Counts made while this node was the innermost: see `hotloop.counters`."""
    between: tuple[Phase | None, Phase | None] = (None, None)
    """Of a gap: phases of the spans before and after it; None at an end of the container."""

    @property
    def mean_ns(self) -> float:
        """Total time of a call, on average."""
        return self.total_ns / self.calls if self.calls else 0.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """A node in one stretch of the loop, as recorded: only timed calls have a time."""

    timed: int
    """Timed calls; for a gap, those of the span before it."""
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
    """For each stretch of the loop (see `trace.drift.cut`) the nodes timed in it. Main thread only."""

    @cached_property
    def by_id(self) -> dict[int, Node]:
        """Node by id."""
        return {node.id: node for node in self.nodes}

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
    """The process over time: one row per window (1 s at first, longer in long runs)."""

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
    """Memory reserved from the system, resident or not; zero in recordings of an earlier version."""


@dataclass(frozen=True, slots=True)
class Overhead:
    """Recording overhead, as measured during the run."""

    span_ns: float
    span_low_ns: float
    span_high_ns: float
    spans_timed: int
    spans_counted: int
    background_cpu_ns: int
    share: float
    """Total overhead as a share of wall time."""
    taken_share: float = 0.0
    """Overhead of spans and wrappers, which is subtracted from the tables because it is known where it arose. The rest
    (sampling, writing, counters) affects all parts equally and is not subtracted."""


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
    """All counters over the loop: see `hotloop.counters`."""
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
    manifest: JsonObject
    """Content of run.json, with what `settings` does not have."""
    processes: tuple[Process, ...]
    """The main process is first."""
    state: State
    warnings: tuple[str, ...]
    loop_start_ns: int
    loop_end_ns: int
    startup_ns: int
    """From the start of recording to the first environment step."""
    paused_ns: int = 0
    """Time of deep profiling in the loop, which only its own tables cover."""
    traced: Traced = NOTHING_TRACED
    """Results of deep profiling."""
    claimed: Claims = NOTHING_CLAIMED
    """Timings that the script printed about itself."""
    counts_before: Mapping[str, int] = field(default_factory=dict)
    """Counts of the training that this run resumes, by counter; empty if it resumes none."""
    missing: tuple[str, ...] = ()
    """What could not be recorded or read, one reason per entry."""
    calls: CallsRecord = field(default_factory=CallsRecord)
    """Calls counted in short windows of the loop."""
    observed: Observed = field(default_factory=Observed)
    """What was seen while the main thread was followed in short windows."""
    sources: Mapping[str, SourceText] = field(default_factory=dict)
    """The user's files by path, as they were when the run was recorded."""
    unix_offset_ns: int | None = None
    """Offset from the run's clock to Unix time, if known."""

    @property
    def main(self) -> Process:
        """The process that was started by the user."""
        return self.processes[0]

    @cached_property
    def settings(self) -> Manifest:
        """The validated part of the manifest. Its state is left out: `state` knows more."""
        return decode(Manifest, {**self.manifest, "state": None})

    @property
    def machine(self) -> Machine:
        """The machine that the run was recorded on."""
        return self.settings.machine or Machine()

    @property
    def torch(self) -> Torch:
        """Torch's settings in the main process."""
        return self.settings.torch or Torch()

    @property
    def why_incomplete(self) -> tuple[str, ...]:
        """Reasons why the recording is incomplete; empty if it is complete."""
        return (*((UNENDED[self.state],) if self.state in UNENDED else ()), *self.missing)

    @property
    def thread(self) -> Thread:
        """The main thread of the main process. Its phases and shares are those of the run."""
        return self.main.main_thread

    @property
    def wall_s(self) -> float:
        """Length of the loop in seconds, without deep profiling."""
        return (self.loop_end_ns - self.loop_start_ns - self.paused_ns) / 1e9

    def __repr__(self) -> str:
        return f"<Trace {self.path!r}, {self.state}, {self.wall_s:.1f} s, {len(self.processes)} process(es)>"

    def _repr_html_(self) -> str:
        """Show the run in a notebook."""
        # Imported here: reading a trace must not load reports, which import traces.
        return importlib.import_module("hotloop.profiling.report.notebook").as_html(self)
