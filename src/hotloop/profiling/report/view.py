"""The view model: every number that a report shows, computed once from the trace and its findings.

Terminal, text, JSON, notebook, charts, progress summary and exports only lay it out, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hotloop.counters import COUNTERS
from hotloop.phases import Phase
from hotloop.profiling.report.verdict import Verdict, make_verdict
from hotloop.profiling.trace import summary
from hotloop.profiling.trace.deep import NOTHING, Traced
from hotloop.profiling.trace.drift import Drift, drift
from hotloop.profiling.trace.hot_lines import HotFunction, HotLine, hot_functions, hot_lines
from hotloop.profiling.trace.model import Memory, Node, Overhead, Process, State, Thread, Trace
from hotloop.profiling.trace.summary import Counts, PhaseRow, Rate, SpanRow
from hotloop.profiling.trace.time_kinds import Kinds

if TYPE_CHECKING:
    from hotloop.profiling.diagnosis.finding import Finding

TREE_SHARE = 0.01
"""Branches below this share of wall time are merged into one row."""
HOTTEST = 50
"""Lines and functions in a report."""


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A row of the call tree."""

    depth: int
    name: str
    phase: str
    kind: str
    """"span", "gap", or "rest": several small branches in one row."""
    calls: int
    total_s: float
    self_s: float
    mean_s: float
    share: float
    """Total time as a share of the thread's wall time."""
    last: bool
    """Whether it is the last child of its parent."""


@dataclass(frozen=True, slots=True)
class ThreadTable:
    """A thread other than the main one of the main process."""

    name: str
    main: bool
    wall_s: float
    cpu_s: float
    phases: tuple[PhaseRow, ...]
    spans: tuple[SpanRow, ...]


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """A process and its threads; for the main process, all but its main thread."""

    pid: int
    parent_pid: int
    name: str
    main: bool
    state: State
    wall_s: float
    peak_rss_bytes: int
    counts: Mapping[str, int]
    threads: tuple[ThreadTable, ...]


@dataclass(frozen=True, eq=False)
class Timeline:
    """The loop over time: one entry per window of the main process that belongs to the loop."""

    loop_start_ns: int
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    counts: Mapping[str, NDArray[np.int64]]
    """By counter: the count at the end of each window, including the training that this run resumes."""
    rates: Mapping[str, NDArray[np.float64]]
    """By counter: amount per second in each window."""
    phase_shares: Mapping[str, NDArray[np.float64]]
    """By phase, largest first: share of the time measured in each window. Phases without any time are left out."""
    memory: Memory
    """Of the main process, start-up included."""

    def seconds(self, at_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Convert clock readings to seconds since the start of the loop."""
        return (at_ns - self.loop_start_ns) / 1e9


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of the run."""

    cores: int
    memory_bytes: int
    gpu: str | None
    platform: str
    python: str
    torch: str | None
    torch_threads: int | None


@dataclass(frozen=True)
class Report:
    """Everything a report shows."""

    name: str
    path: str
    state: State
    exit_code: int | None
    """Exit code of the script, if known."""
    command: tuple[str, ...]
    missing: tuple[str, ...]
    """Reasons why the recording is incomplete; empty if it is complete."""
    machine: Machine
    wall_s: float
    startup_s: float
    cpu_s: float
    """CPU time of the main thread."""
    attributed_share: float
    overhead: Overhead
    counts: Counts
    """Counts of this run."""
    counts_total: Counts
    """Counts including the training that this run resumes; equal to `counts` if it resumes none."""
    rates: Mapping[str, Rate]
    timeline: Timeline
    phases: tuple[PhaseRow, ...]
    spans: tuple[SpanRow, ...]
    tree: tuple[TreeRow, ...]
    verdict: Verdict
    lines: tuple[HotLine, ...]
    """The hottest lines of the main thread."""
    functions: tuple[HotFunction, ...]
    """The hottest functions of the main thread."""
    kinds: Mapping[str, float]
    """The main thread's time by kind: shares, largest first."""
    processes: tuple[ProcessTable, ...]
    rss_bytes: int
    """Last memory sample of the main process; 0 if there is none."""
    peak_rss_bytes: int
    rss_growth_bytes: int
    """From the first to the last memory sample of the main process."""
    peak_gpu_bytes: int
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    traced: Traced = NOTHING
    """Results of deep profiling: functions, operators and layers."""
    drift: Drift | None = None
    """How the loop changed over time; None if there was no significant change."""

    @property
    def unrecorded_env_steps_per_s(self) -> float | None:
        """Expected rate without the recorder; None if it is unknown."""
        if not self.counts.env_steps or self.overhead.share >= 1:
            return None
        return self.rates["env_steps_per_s"].median / (1 - self.overhead.share)


def build(trace: Trace, findings: Sequence[Finding]) -> Report:
    """Return the view of a run."""
    memory = trace.main.memory
    lines = tuple(hot_lines(trace)[:HOTTEST])
    return Report(
        name=trace.name,
        path=trace.path,
        state=trace.state,
        exit_code=trace.settings.exit_code,
        command=trace.settings.command,
        missing=trace.why_incomplete,
        machine=_machine(trace),
        wall_s=trace.wall_s,
        startup_s=trace.startup_ns / 1e9,
        cpu_s=trace.thread.cpu_ns / 1e9,
        attributed_share=summary.attributed_share(trace),
        overhead=trace.main.overhead,
        counts=summary.counts(trace),
        counts_total=summary.counts_total(trace),
        rates=summary.rates(trace),
        timeline=_timeline(trace),
        phases=tuple(summary.phases(trace.thread)),
        spans=tuple(summary.spans(trace.thread)),
        tree=tuple(tree_rows(trace.thread, TREE_SHARE)),
        verdict=make_verdict(trace.wall_s, summary.counts(trace), summary.rates(trace), findings, lines),
        lines=lines,
        functions=tuple(hot_functions(trace)[:HOTTEST]),
        kinds=Kinds(trace, trace.thread).shares(trace.thread.samples),
        processes=tuple(_processes(trace)),
        rss_bytes=int(memory.rss_bytes[-1]) if len(memory.rss_bytes) else 0,
        peak_rss_bytes=int(memory.rss_bytes.max(initial=0)),
        rss_growth_bytes=int(memory.rss_bytes[-1] - memory.rss_bytes[0]) if len(memory.rss_bytes) else 0,
        peak_gpu_bytes=int(memory.gpu_bytes.max(initial=0)),
        findings=tuple(findings),
        warnings=_warnings(trace),
        traced=trace.traced,
        drift=drift(trace),
    )


def _timeline(trace: Trace) -> Timeline:
    windows = trace.main.windows
    in_loop = windows.in_loop
    self_ns = {str(phase): ns[in_loop] for phase, ns in windows.phase_self_ns.items() if ns[in_loop].any()}
    # Shares of the measured time: recording overhead is already subtracted, so phases do not quite fill a window.
    measured_ns = np.maximum(np.sum(list(self_ns.values()), axis=0), 1)
    by_time = sorted(self_ns, key=lambda phase: -int(self_ns[phase].sum()))
    return Timeline(
        loop_start_ns=trace.loop_start_ns,
        start_ns=windows.start_ns[in_loop],
        end_ns=windows.end_ns[in_loop],
        counts={name: summary.count_over_time(trace, name) for name in COUNTERS},
        rates={name: summary.rate_over_time(trace, name) for name in COUNTERS},
        phase_shares={phase: self_ns[phase] / measured_ns for phase in by_time},
        memory=trace.main.memory,
    )


def tree_rows(thread: Thread, least_share: float) -> list[TreeRow]:
    """Return the call tree as indented rows, largest branch first, without those below `least_share`."""
    rows: list[TreeRow] = []
    root = thread.nodes[0]
    # Not recursive: a tree may be deeper than Python's stack.
    pending = _children(thread, root, least_share, 0)
    while pending:
        row, node = pending.pop()
        rows.append(row)
        if node is not None:
            pending += _children(thread, node, least_share, row.depth + 1)
    if root.self_ns >= max(least_share * thread.wall_ns, 1):
        alone = replace(root, name=str(Phase.OWN), calls=0, total_ns=root.self_ns)
        rows.append(replace(_tree_row(alone, thread, 0, last=True), phase=str(Phase.OWN)))
    return rows


def _children(thread: Thread, parent: Node, least_share: float, depth: int) -> list[tuple[TreeRow, Node | None]]:
    """Return the rows of a node's children with their nodes, largest last. Small ones share a row without a node."""
    children = sorted(_merged_gaps(thread.children.get(parent.id, ())), key=lambda node: -node.total_ns)
    least_ns = least_share * thread.wall_ns
    shown = [node for node in children if node.total_ns >= least_ns]
    small = children[len(shown) :]
    found: list[tuple[TreeRow, Node | None]] = []
    if sum(node.total_ns for node in small) >= max(least_ns, 1):
        found.append((_rest_row(small, thread, depth), None))
    for node in reversed(shown):
        found.append((_tree_row(node, thread, depth, last=not found), node))
    return found


def _merged_gaps(children: Iterable[Node]) -> list[Node]:
    """Return nodes, with gaps of the same name as one: the same network before and after may act or learn."""
    found: dict[tuple[str, int], Node] = {}
    for node in children:
        key = (node.name, 0) if node.kind == "gap" else (node.name, node.id)
        same = found.get(key)
        total, own = (same.total_ns, same.self_ns) if same else (0, 0)
        found[key] = replace(node, total_ns=node.total_ns + total, self_ns=node.self_ns + own)
    return list(found.values())


def _tree_row(node: Node, thread: Thread, depth: int, last: bool) -> TreeRow:
    return TreeRow(
        depth=depth,
        name=node.name,
        phase=str(node.phase),
        kind=node.kind,
        calls=node.calls,
        total_s=node.total_ns / 1e9,
        self_s=node.self_ns / 1e9,
        mean_s=node.mean_ns / 1e9,
        share=node.total_ns / thread.wall_ns if thread.wall_ns else 0.0,
        last=last,
    )


def _rest_row(nodes: list[Node], thread: Thread, depth: int) -> TreeRow:
    calls, total_ns, self_ns = map(sum, zip(*((n.calls, n.total_ns, n.self_ns) for n in nodes), strict=True))
    merged = replace(nodes[0], name=f"{len(nodes)} smaller", calls=calls, total_ns=total_ns, self_ns=self_ns)
    return replace(_tree_row(merged, thread, depth, last=True), phase="other", kind="rest", mean_s=0.0)


def _machine(trace: Trace) -> Machine:
    machine = trace.machine
    versions = trace.settings.versions or {}
    return Machine(
        cores=machine.cores or 0,
        memory_bytes=machine.memory_bytes or 0,
        gpu=machine.gpu,
        platform=machine.platform or "unknown",
        python=machine.python or versions.get("python") or "unknown",
        torch=versions.get("torch"),
        torch_threads=trace.torch.threads,
    )


def _processes(trace: Trace) -> list[ProcessTable]:
    found = [_process(process, trace.thread) for process in trace.processes]
    return [table for table in found if table.threads or not table.main]


def _process(process: Process, main_thread: Thread) -> ProcessTable:
    return ProcessTable(
        pid=process.pid,
        parent_pid=process.parent_pid,
        name=process.name,
        main=process.main,
        state=process.state,
        wall_s=(process.end_ns - process.start_ns) / 1e9,
        peak_rss_bytes=int(process.memory.rss_bytes.max(initial=0)),
        counts=dict(process.counts),
        threads=tuple(_thread(thread) for thread in process.threads if thread is not main_thread),
    )


def _thread(thread: Thread) -> ThreadTable:
    return ThreadTable(
        name=thread.name,
        main=thread.main,
        wall_s=thread.wall_ns / 1e9,
        cpu_s=thread.cpu_ns / 1e9,
        phases=tuple(summary.phases(thread)),
        spans=tuple(summary.spans(thread)),
    )


def _warnings(trace: Trace) -> tuple[str, ...]:
    own = [*trace.warnings, *trace.main.warnings]
    others = [
        f"process {process.pid} ({process.name}): {warning}"
        for process in trace.processes[1:]
        for warning in process.warnings
    ]
    # The run and its main process may have the same warning.
    return tuple(dict.fromkeys([*own, *others]))
