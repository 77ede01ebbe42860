"""A window's call tree as slices of a timeline: each as long as its time, one after the other, children inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hotloop.phases import Phase
from hotloop.profiling.trace.build.columns import sum_by
from hotloop.profiling.trace.model import Thread
from hotloop.profiling.trace.reading.window_streams import ThreadStream

LEAST_NS = 2_000
"""Slices shorter than this are left out: nobody could find them in a window of a second."""


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

    Each node's self time over all windows is made to be that of the trace, which is corrected for what spans cost and
    for calls that were not timed; then the tree is drawn to fill the window as far as the thread was seen in it.

    Args:
        stream: The thread, from the files.
        thread: The same from the trace; None if it has no time in the loop.
    """
    factors = _Factors(stream, thread)
    order = np.argsort(stream.window, kind="stable")
    edges = np.searchsorted(stream.window[order], np.arange(len(stream.window_start_ns) + 1))
    for number in range(len(stream.window_start_ns)):
        rows = order[edges[number] : edges[number + 1]]
        tree = _Tree(stream, thread)
        for row in rows.tolist():
            node = int(stream.node[row])
            if node in stream.places and not stream.places[node].dark:
                tree.add(node, factors.self_ns(node, row), factors.calls(node, row))
        seen_ns = int(stream.self_ns[rows].sum())
        start, end = int(stream.window_start_ns[number]), int(stream.window_end_ns[number])
        yield from tree.slices(start, min(end - start, seen_ns))


class _Factors:
    """What a node's numbers are multiplied with, so that over the loop they sum to those of the trace."""

    def __init__(self, stream: ThreadStream, thread: Thread | None) -> None:
        self._stream = stream
        corrected = thread.by_id if thread else {}
        rows = stream.in_loop[stream.window]
        node = stream.node[rows]
        self_ns, calls = (sum_by(node, column[rows]) for column in (stream.self_ns, stream.calls))
        self._self: dict[int, float] = {}
        self._calls: dict[int, float] = {}
        for number in np.unique(stream.node).tolist():
            if thread is not None and number in corrected:
                self._self[number] = thread.recorded_ns(number) / max(self_ns.get(number, 0), 1)
                self._calls[number] = corrected[number].calls / max(calls.get(number, 0), 1)

    def self_ns(self, node: int, row: int) -> float:
        return int(self._stream.self_ns[row]) * self._self.get(node, 1.0)

    def calls(self, node: int, row: int) -> int:
        return round(int(self._stream.calls[row]) * self._calls.get(node, 1.0))


class _Tree:
    """The call tree of one window."""

    def __init__(self, stream: ThreadStream, thread: Thread | None) -> None:
        self._places = stream.places
        self._known = thread.by_id if thread else {}
        self._self: dict[int, float] = {}
        self._calls: dict[int, int] = {}
        self._total: dict[int, float] = {}
        self._children: dict[int, list[int]] = {}

    def add(self, node: int, self_ns: float, calls: int) -> None:
        self._self[node], self._calls[node] = self_ns, calls
        while node >= 0 and node not in self._total:
            self._total[node] = 0.0
            self._children.setdefault(self._places[node].parent, []).append(node)
            node = self._places[node].parent

    def _add_up(self) -> None:
        # A node's parent has a smaller number.
        for node in sorted(self._total, reverse=True):
            self._total[node] += self._self.get(node, 0.0)
            parent = self._places[node].parent
            if parent >= 0:
                self._total[parent] += self._total[node]

    def slices(self, start_ns: int, length_ns: int) -> Iterator[Slice]:
        self._add_up()
        whole = sum(self._total[root] for root in self._children.get(-1, ()))
        scale = length_ns / whole if whole > 0 else 0.0
        # Not by recursion: a tree may be deeper than Python's stack.
        waiting = [each for root in self._children.get(-1, ()) for each in self._placed(root, start_ns, scale)]
        while waiting:
            node, start, end = waiting.pop()
            yield self._slice(node, start, end)
            waiting += self._placed(node, start, scale)

    def _placed(self, parent: int, start_ns: int, scale: float) -> list[tuple[int, int, int]]:
        """Return the children of a node that are long enough to be seen, with begin and end, the first one last."""
        found: list[tuple[int, int, int]] = []
        at = float(start_ns)
        for node in sorted(self._children.get(parent, ())):
            end = at + self._total[node] * scale
            if end - at >= LEAST_NS:
                found.append((node, int(at), int(end)))
            at = end
        return found[::-1]

    def _slice(self, node: int, start_ns: int, end_ns: int) -> Slice:
        place, known = self._places[node], self._known.get(node)
        # A gap's phase is known only to the trace, which has looked at its stacks.
        phase = known.phase if known else place.phase
        total, own = round(self._total[node]), round(self._self.get(node, 0.0))
        return Slice(place.name, phase, start_ns, end_ns, self._calls.get(node, 0), total, own)
