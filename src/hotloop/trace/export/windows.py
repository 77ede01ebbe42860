"""A window's call tree as slices of a timeline: each as long as its time, one after the other, children inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hotloop.spans import Phase
from hotloop.trace.model import Thread
from hotloop.trace.streams import ThreadStream

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
        self._self: dict[int, float] = {}
        self._calls: dict[int, float] = {}
        for node in np.unique(stream.node).tolist():
            rows = (stream.node == node) & stream.in_loop[stream.window]
            if thread is not None and node in corrected:
                self._self[node] = thread.recorded_ns(node) / max(int(stream.self_ns[rows].sum()), 1)
                self._calls[node] = corrected[node].calls / max(int(stream.calls[rows].sum()), 1)

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
        while node >= 0:
            if node not in self._total:
                self._total[node] = 0.0
                self._children.setdefault(self._places[node].parent, []).append(node)
            self._total[node] += self_ns
            node = self._places[node].parent

    def slices(self, start_ns: int, length_ns: int) -> Iterator[Slice]:
        whole = sum(self._total[root] for root in self._children.get(-1, ()))
        scale = length_ns / whole if whole > 0 else 0.0
        for root in self._children.get(-1, ()):
            yield from self._below(root, start_ns, scale)

    def _below(self, parent: int, start_ns: int, scale: float) -> Iterator[Slice]:
        at = float(start_ns)
        for node in sorted(self._children.get(parent, ())):
            end = at + self._total[node] * scale
            if end - at >= LEAST_NS:
                yield self._slice(node, int(at), int(end))
                yield from self._below(node, int(at), scale)
            at = end

    def _slice(self, node: int, start_ns: int, end_ns: int) -> Slice:
        place, known = self._places[node], self._known.get(node)
        # A gap's phase is known only to the trace, which has looked at its stacks.
        phase = known.phase if known else place.phase
        total, own = round(self._total[node]), round(self._self.get(node, 0.0))
        return Slice(place.name, phase, start_ns, end_ns, self._calls.get(node, 0), total, own)
