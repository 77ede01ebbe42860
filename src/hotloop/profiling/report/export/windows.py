"""A window's call tree as slices of a timeline: one after the other, each as long as its time, children inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hotloop.phases import Phase
from hotloop.profiling.trace.build.columns import sum_by
from hotloop.profiling.trace.model import Thread
from hotloop.profiling.trace.reading.call_streams import ThreadStream

LEAST_NS = 2_000
"""Shorter slices are left out: they are invisible in a window of a second."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A node's time in one window."""

    name: str
    phase: Phase
    start_ns: int
    end_ns: int
    calls: int
    total_ns: int
    self_ns: int


def window_slices(stream: ThreadStream, thread: Thread | None) -> Iterator[Slice]:
    """Yield the slices of a thread, window by window, parents first.

    Self times are scaled so that each node's sum over all windows is that of the trace, which is corrected for span
    overhead and for calls that were not timed. Then the tree is drawn as wide as the time recorded in the window.
    `thread` is None if the thread has no time in the loop.
    """
    recorded, windows = stream.thread, stream.process.windows
    factors = _factors(stream, thread)
    order = np.argsort(recorded.window, kind="stable")
    edges = np.searchsorted(recorded.window[order], np.arange(len(windows.start_ns) + 1))
    for number, (start_ns, end_ns) in enumerate(zip(windows.start_ns.tolist(), windows.end_ns.tolist(), strict=True)):
        rows = order[edges[number] : edges[number + 1]]
        tree = _Tree(stream, thread)
        for row in rows.tolist():
            node = int(recorded.node[row])
            if node in recorded.nodes and not recorded.nodes[node].dark:
                for_time, for_calls = factors.get(node, (1.0, 1.0))
                tree.add(node, int(recorded.self_ns[row]) * for_time, round(int(recorded.calls[row]) * for_calls))
        recorded_ns = int(recorded.self_ns[rows].sum())
        yield from tree.slices(start_ns, min(end_ns - start_ns, recorded_ns))


def _factors(stream: ThreadStream, thread: Thread | None) -> dict[int, tuple[float, float]]:
    """Return the factors that scale a node's self times and calls so that their sums are those of the trace."""
    if thread is None:
        return {}
    recorded = stream.thread
    rows = stream.process.windows.in_loop[recorded.window]
    self_ns, calls = (sum_by(recorded.node[rows], column[rows]) for column in (recorded.self_ns, recorded.calls))
    return {
        node: (
            thread.by_id[node].self_ns / max(self_ns.get(node, 0), 1),
            thread.by_id[node].calls / max(calls.get(node, 0), 1),
        )
        for node in np.unique(recorded.node).tolist()
        if node in thread.by_id
    }


class _Tree:
    """The call tree of one window."""

    def __init__(self, stream: ThreadStream, thread: Thread | None) -> None:
        self._stream = stream
        self._nodes = stream.thread.nodes
        self._known = thread.by_id if thread else {}
        self._self: dict[int, float] = {}
        self._calls: dict[int, int] = {}
        self._total: dict[int, float] = {}
        self._children: dict[int, list[int]] = {}

    def add(self, node: int, self_ns: float, calls: int) -> None:
        self._self[node], self._calls[node] = self_ns, calls
        while node >= 0 and node not in self._total:
            self._total[node] = 0.0
            self._children.setdefault(self._nodes[node].parent, []).append(node)
            node = self._nodes[node].parent

    def slices(self, start_ns: int, length_ns: int) -> Iterator[Slice]:
        # A node's parent has a smaller number.
        for node in sorted(self._total, reverse=True):
            self._total[node] += self._self.get(node, 0.0)
            parent = self._nodes[node].parent
            if parent >= 0:
                self._total[parent] += self._total[node]
        whole = sum(self._total[root] for root in self._children.get(-1, ()))
        scale = length_ns / whole if whole > 0 else 0.0
        # Not recursive: a tree may be deeper than Python's stack.
        waiting = [each for root in self._children.get(-1, ()) for each in self._placed(root, start_ns, scale)]
        while waiting:
            node, start, end = waiting.pop()
            yield self._slice(node, start, end)
            waiting += self._placed(node, start, scale)

    def _placed(self, parent: int, start_ns: int, scale: float) -> list[tuple[int, int, int]]:
        """Return the children of a node that are long enough to draw, with start and end, in reverse order."""
        found: list[tuple[int, int, int]] = []
        at = float(start_ns)
        for node in sorted(self._children.get(parent, ())):
            end = at + self._total[node] * scale
            if end - at >= LEAST_NS:
                found.append((node, int(at), int(end)))
            at = end
        return found[::-1]

    def _slice(self, node: int, start_ns: int, end_ns: int) -> Slice:
        known = self._known.get(node)
        # Only the trace knows the phase of a gap, from its stacks.
        phase = known.phase if known else self._stream.phase(node)
        total, own = round(self._total[node]), round(self._self.get(node, 0.0))
        return Slice(self._nodes[node].label, phase, start_ns, end_ns, self._calls.get(node, 0), total, own)
