"""Counts what hooks count during a call, without a recorder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hotloop.spans import registry


def counted(work: Callable[[], object]) -> Counter[str]:
    """Call a function; return the counts during the call, by name."""
    return counted_and_open(work)[0]


def counted_and_open(work: Callable[[], object]) -> tuple[Counter[str], int]:
    """Call a function; return the counts during the call, by name, and the number of spans left open."""
    logs = registry.listen()
    try:
        work()
    finally:
        registry.hush()
    names = {code: name for name, code in registry.known_counters().items()}
    found: Counter[str] = Counter()
    still_open = 0
    for log in logs:
        for code, amount in zip(log.events[::2], log.events[1::2], strict=True):
            if code >= registry.COUNTER_BASE:
                found[names[code]] += amount
            else:
                still_open += 1 if code > 0 else -1
    return found, still_open
