"""Reference implementation of `fold`: event by event, with a stack; slow, but easy to read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hotloop.spans.registry import COUNTER_BASE

Path = tuple[int, ...]
"""Codes from below the root down to a span; () is the root."""
Event = tuple[int, int]


@dataclass
class Sums:
    """Measurements by path. Gaps belong to the span that contains them."""

    total_ns: Counter[Path] = field(default_factory=Counter)
    self_ns: Counter[Path] = field(default_factory=Counter)
    calls: Counter[Path] = field(default_factory=Counter)
    counters: Counter[tuple[Path, int]] = field(default_factory=Counter)
    shortest_ns: dict[Path, int] = field(default_factory=dict)
    longest_ns: dict[Path, int] = field(default_factory=dict)


def reference(events: list[Event], begin_ns: int, end_ns: int) -> Sums:
    """Fold well-nested events of one thread; spans open at the end are cut there and not counted as calls."""
    sums = Sums()
    stack: list[int] = []
    starts: list[int] = []
    now = begin_ns

    def spend(until: int) -> None:
        nonlocal now
        sums.self_ns[tuple(stack)] += until - now
        for depth in range(len(stack) + 1):
            sums.total_ns[tuple(stack[:depth])] += until - now
        now = until

    for code, value in events:
        path = tuple(stack)
        if code >= COUNTER_BASE:
            sums.counters[path, code] += value
        elif code > 0:
            spend(value)
            stack.append(code)
            starts.append(value)
        else:
            spend(value)
            assert stack.pop() == -code
            length = value - starts.pop()
            sums.calls[path] += 1
            sums.shortest_ns[path] = min(length, sums.shortest_ns.get(path, length))
            sums.longest_ns[path] = max(length, sums.longest_ns.get(path, length))
    spend(end_ns)
    return sums
