"""Numbers as people read them: times, sizes, counts and shares in few characters."""

from __future__ import annotations

import math
from collections.abc import Sequence


def ending(state: str, exit_code: int | None) -> str:
    """Return how a run ended: `finished`, `failed (exit 1)`."""
    if state == "unknown":
        return "running elsewhere?"
    return f"{state} (exit {exit_code})" if state == "failed" and exit_code is not None else state


def seconds(value_s: float) -> str:
    """Return a time with a fitting unit: `1 h 05 min`, `12.3 s`, `4.56 ms`, `7.80 µs`, `45 ns`."""
    if value_s >= 3600:
        minutes = round(value_s / 60)
        return f"{minutes // 60} h {minutes % 60:02d} min"
    if value_s >= 100:
        whole = round(value_s)
        return f"{whole // 60} min {whole % 60:02d} s"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value_s >= 0.9995 * size:
            return f"{digits(value_s / size)} {unit}"
    return f"{value_s * 1e9:.0f} ns" if value_s > 0 else "0 s"


def size(value_bytes: float) -> str:
    """Return bytes with a decimal unit: `340 MB`."""
    sign, value_bytes = ("-" if value_bytes < 0 else ""), abs(value_bytes)
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value_bytes >= 0.9995 * factor:
            return f"{sign}{digits(value_bytes / factor)} {unit}"
    return f"{sign}{value_bytes:.0f} B"


def count(value: float) -> str:
    """Return a count: `12,345`, `1.23 M`."""
    for unit, factor in (("G", 1e9), ("M", 1e6)):
        if value >= factor:
            return f"{value / factor:.2f} {unit}"
    return f"{value:,.0f}"


def rate(value: float) -> str:
    """Return an amount per second: `1,234`, `56.7`, `0.12`."""
    return f"{value:,.0f}" if value >= 1000 else digits(value)


def percent(share: float) -> str:
    """Return a share as `12.3 %`."""
    return f"{share * 100:.1f} %"


def percents(shares: Sequence[float]) -> list[int]:
    """Return shares of one whole in whole per cent that sum to what the shares sum to, never to 101.

    Each is rounded down, then those that lost most are rounded up until the sum is right.
    """
    exact = [100 * share for share in shares]
    found = [math.floor(each) for each in exact]
    lost_most = sorted(range(len(exact)), key=lambda i: found[i] - exact[i])
    for i in lost_most[: round(sum(exact)) - sum(found)]:
        found[i] += 1
    return found


def in_all(here: int, total: int) -> str:
    """Return a count of this run and, where it resumes another, what there is with that one's."""
    return f"{total:,} in all" if here == total else f"{here:,} in this run, {total:,} in all"


def digits(value: float) -> str:
    """Return a number with three digits that matter."""
    if value == 0:
        return "0"
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
