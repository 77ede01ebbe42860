"""The tables of a run: phases, spans, counts and rates. Pure functions on a `Trace`.

Self time and total time are kept apart: self times sum to the wall time of the thread, totals of nested
spans do not. A rate is the median over the windows of the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hotloop.counters import COUNTERS, steps_per_episode
from hotloop.phases import GROUPS, Phase
from hotloop.profiling.trace.model import Node, Process, Thread, Trace

WEIGHTS = {"time": 0.40, "per_call": 0.30, "cpu_memory": 0.15, "gpu_memory": 0.15}
"""Weights of the profiler study's score for an operation."""

SHORT_WINDOW = 0.25
"""Windows shorter than this fraction of the median are ignored for rates (the last one is often cut short)."""


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """The time of a thread in one phase."""

    phase: str
    group: str
    self_s: float
    share: float
    """Of the thread's wall time, 0..1."""
    calls: int
    """Calls of spans of this phase from outside the phase."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of the loop: see `hotloop.counters`."""

    env_steps: int
    frames: int
    updates: int
    episodes: int
    steps_per_episode: float | None
    """None until an episode has ended."""


@dataclass(frozen=True, slots=True)
class SpanRow:
    """A span or gap, merged over all call paths that lead to it."""

    name: str
    phase: str
    group: str
    calls: int
    total_s: float
    """Recursive calls are counted once: their time is already in the outer call."""
    self_s: float
    mean_s: float
    """Average over all calls."""
    min_s: float
    max_s: float
    p50_s: float
    """Exact for a span with one call path; over several, the mean of their medians, weighted by calls."""
    p95_s: float
    cpu_memory_bytes: int
    """Growth of resident memory while it was open."""
    cpu_peak_bytes: int
    """Peak resident memory while it was open."""
    gpu_memory_bytes: int
    score: float = 0.0
    """0..1: the profiler study's weighted sum of time, time per call and memory."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Amount per second. Every report shows the median; JSON has the others as well."""

    mean: float
    """Total amount divided by the length of the loop."""
    median: float
    """Over windows, which are joined until none is empty: see `_coarse`."""
    low: float
    """5th percentile of the windows."""
    high: float
    """95th percentile of the windows."""
    last: float
    """Rate in the last window."""


def phases(thread: Thread) -> list[PhaseRow]:
    """Return the phases of a thread, largest share first. Self time of its root is own code."""
    self_ns: dict[tuple[str, str], int] = {}
    calls: dict[tuple[str, str], int] = {}
    for node in thread.nodes:
        phase = Phase.OWN if node.kind == "root" else node.phase
        key = str(phase), GROUPS[phase]
        self_ns[key] = self_ns.get(key, 0) + node.self_ns
        entered = node.kind == "span" and not _within_phase(thread, node)
        calls[key] = calls.get(key, 0) + (node.calls if entered else 0)
    rows = [
        PhaseRow(phase, group, ns / 1e9, _ratio(ns, thread.wall_ns), calls[phase, group])
        for (phase, group), ns in self_ns.items()
        if ns or calls[phase, group]
    ]
    return sorted(rows, key=lambda row: (-row.share, row.phase))


def spans(thread: Thread) -> list[SpanRow]:
    """Return the spans and gaps of a thread, merged by name and phase, with their scores."""
    merged: dict[tuple[str, str], list[Node]] = {}
    for node in thread.nodes:
        if node.kind != "root":
            merged.setdefault((node.name, node.phase), []).append(node)
    rows = _scored([_span_row(thread, nodes) for nodes in merged.values()])
    return sorted(rows, key=lambda row: (-row.self_s, row.name))


def counts(trace: Trace) -> Counts:
    """Return the counts of this run, from the main process or, where it counted nothing, from the others.

    Iterations of deep profiling are included here, but not in `rates`, because deep profiling slows them down.
    """
    return _counts(*(_total(trace, name) + trace.traced.counts.get(name, 0) for name in COUNTERS))


def counts_total(trace: Trace) -> Counts:
    """Return the counts of this run plus those of the training that it resumes."""
    here = counts(trace)
    return _counts(*(getattr(here, name) + trace.counts_before.get(name, 0) for name in COUNTERS))


def _counts(env_steps: int, frames: int, updates: int, episodes: int) -> Counts:
    return Counts(env_steps, frames, updates, episodes, steps_per_episode(env_steps, episodes))


def rates(trace: Trace) -> dict[str, Rate]:
    """Return `env_steps_per_s`, `frames_per_s`, `updates_per_s` and `episodes_per_s`."""
    return {f"{name}_per_s": _rate(trace, name) for name in COUNTERS}


def rate_over_time(trace: Trace, counter: str) -> NDArray[np.float64]:
    """Return the amount per second in each window of the loop."""
    starts, ends, amounts = window_amounts(trace, counter)
    return amounts / np.maximum((ends - starts) / 1e9, 1e-9)


def count_over_time(trace: Trace, counter: str) -> NDArray[np.int64]:
    """Return the counter at the end of each window of the loop, including the training that the run resumes."""
    starts, ends, amounts = window_amounts(trace, counter)
    # Deep profiling leaves a hole between two windows; its counts belong there.
    holes = np.flatnonzero(starts[1:] > ends[:-1]) + 1
    if len(starts):
        amounts[holes[0] if len(holes) else -1] += trace.traced.counts.get(counter, 0)
    return trace.counts_before.get(counter, 0) + np.cumsum(amounts).astype(np.int64)


def window_amounts(trace: Trace, counter: str) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return start and end (ns) of the windows of the loop, and the counter's amount in each."""
    main = trace.main.windows
    starts, ends = main.start_ns[main.in_loop], main.end_ns[main.in_loop]
    amounts = np.zeros(len(starts))
    for process in _counting(trace, counter):
        theirs = process.windows.counts.get(counter)
        if theirs is None:
            continue
        if process is trace.main:
            amounts += theirs[main.in_loop]
            continue
        inside = process.windows.in_loop
        middles = ((process.windows.start_ns + process.windows.end_ns) // 2)[inside]
        # The first and last window of another process may extend beyond those of the main process.
        place = np.clip(np.searchsorted(ends, middles, side="right"), 0, len(ends) - 1)
        np.add.at(amounts, place, theirs[inside])
    return starts, ends, amounts


def attributed_share(trace: Trace) -> float:
    """Return the share of the main thread's wall time of which the phase is known, 0..1: all but own code."""
    own_ns = sum(node.self_ns for node in trace.thread.nodes if node.kind == "root" or node.phase is Phase.OWN)
    return 1.0 - _ratio(own_ns, trace.thread.wall_ns) if trace.thread.wall_ns else 0.0


def _within_phase(thread: Thread, node: Node) -> bool:
    parent = thread.by_id.get(node.parent)
    return parent is not None and parent.kind != "root" and parent.phase == node.phase


def _within_itself(thread: Thread, node: Node) -> bool:
    key = (node.name, node.phase)
    while node.parent >= 0:
        node = thread.by_id[node.parent]
        if (node.name, node.phase) == key:
            return True
    return False


def _span_row(thread: Thread, nodes: list[Node]) -> SpanRow:
    calls = sum(node.calls for node in nodes)
    first = nodes[0]
    return SpanRow(
        name=first.name,
        phase=str(first.phase),
        group=GROUPS[first.phase],
        calls=calls,
        total_s=sum(node.total_ns for node in nodes if not _within_itself(thread, node)) / 1e9,
        self_s=sum(node.self_ns for node in nodes) / 1e9,
        mean_s=_ratio(sum(node.total_ns for node in nodes), calls) / 1e9,
        min_s=min((node.min_ns for node in nodes if node.calls), default=0) / 1e9,
        max_s=max(node.max_ns for node in nodes) / 1e9,
        p50_s=_ratio(sum(node.p50_ns * node.calls for node in nodes), calls) / 1e9,
        p95_s=_ratio(sum(node.p95_ns * node.calls for node in nodes), calls) / 1e9,
        cpu_memory_bytes=sum(node.cpu_memory_bytes for node in nodes),
        cpu_peak_bytes=max(node.cpu_peak_bytes for node in nodes),
        gpu_memory_bytes=sum(node.gpu_memory_bytes for node in nodes),
    )


def _scored(rows: list[SpanRow]) -> list[SpanRow]:
    """Return the rows with the study's score, from self times: by totals, a parent always beats its children."""
    columns = {
        "time": [row.self_s for row in rows],
        "per_call": [_ratio(row.self_s, row.calls) for row in rows],
        "cpu_memory": [float(max(0, row.cpu_memory_bytes)) for row in rows],
        "gpu_memory": [float(max(0, row.gpu_memory_bytes)) for row in rows],
    }
    if not any(columns["gpu_memory"]):
        del columns["gpu_memory"]
    whole = sum(WEIGHTS[name] for name in columns)
    scores = [0.0] * len(rows)
    for name, values in columns.items():
        largest = max(values, default=0.0)
        for i, value in enumerate(values):
            scores[i] += WEIGHTS[name] / whole * _ratio(value, largest)
    return [replace(row, score=score) for row, score in zip(rows, scores, strict=True)]


def _counting(trace: Trace, counter: str) -> tuple[Process, ...]:
    """Return the processes whose counts make up the run's.

    A main process that counts steps counts those of its workers, with their frames and episodes. So a worker's episode
    does not count for the run, even if the main process has counted none yet.
    """
    mine = trace.main.counts
    if mine.get(counter, 0) or (counter != "updates" and mine.get("env_steps", 0)):
        return (trace.main,)
    return tuple(process for process in trace.processes[1:] if process.counts.get(counter, 0))


def _total(trace: Trace, counter: str) -> int:
    return sum(process.counts.get(counter, 0) for process in _counting(trace, counter))


def _rate(trace: Trace, counter: str) -> Rate:
    starts, ends, amounts = window_amounts(trace, counter)
    mean = _ratio(_total(trace, counter), trace.wall_s)
    seconds = (ends - starts) / 1e9
    usable = (seconds > 0) & (seconds >= SHORT_WINDOW * np.median(seconds)) if len(seconds) else seconds > 0
    amounts, seconds = amounts[usable], seconds[usable]
    if not len(seconds) or not amounts.any():
        return Rate(mean, mean, mean, mean, mean)
    per_s = _coarse(amounts, seconds)
    low, median, high = np.percentile(per_s, [5, 50, 95])
    return Rate(mean, float(median), float(low), float(high), float(per_s[-1]))


def _coarse(amounts: NDArray[np.float64], seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rates over windows that are joined until none is empty.

    A loop that alternates seconds of collecting with seconds of learning has windows without an update, and their
    median could be 0. Joining starts at the end, so that the last joined window is complete.
    """
    size = 1
    while size < len(amounts):
        amount, time = _join(amounts, size), _join(seconds, size)
        if amount.all():
            return amount / time
        size *= 2
    return np.array([amounts.sum() / seconds.sum()])


def _join(values: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    first = len(values) % size
    # The remainder at the beginning is shorter than a joined window, so it is left out.
    return values[first:].reshape(-1, size).sum(axis=1)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
