"""How hotloop writes numbers for people: times, sizes, counts, rates and shares, with three significant digits.

In tables all digits are written, so that columns align: `3.00 ms`, `42.0 %`. `duration`, `amount`, `times` and
`short_percent` are for sentences, such as the evidence of a finding: `3 ms`, `42 %`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def ending(state: str, exit_code: int | None) -> str:
    """Return the state of a run for people: `finished`, `failed (exit 1)`."""
    if state == "unknown":
        return "running elsewhere?"
    return f"{state} (exit {exit_code})" if state == "failed" and exit_code is not None else state


def seconds(value_s: float) -> str:
    """Return a time with a suitable unit: `1 h 05 min`, `12.3 s`, `4.56 ms`, `7.80 µs`, `45 ns`."""
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


def size(amount: float, unit: str = "B") -> str:
    """Return an amount of bytes, or of another unit, with a decimal prefix: `340 MB`, `1.20 GFLOP`."""
    sign, amount = ("-" if amount < 0 else ""), abs(amount)
    for prefix, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if amount >= 0.9995 * factor:
            return f"{sign}{digits(amount / factor)} {prefix}{unit}"
    return f"{sign}{amount:.0f} {unit}"


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
    """Return a share for a table, always with one decimal: `12.3 %`."""
    return f"{share * 100:.1f} %"


def percents(shares: Sequence[float]) -> list[int]:
    """Return shares as whole percentages whose sum is the rounded sum of the shares, so never 101.

    Each is rounded down; then those with the largest remainders are rounded up until the sum is right.
    """
    exact = [100 * share for share in shares]
    rounded = [math.floor(each) for each in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: rounded[i] - exact[i])
    for i in by_remainder[: round(sum(exact)) - sum(rounded)]:
        rounded[i] += 1
    return rounded


def with_total(here: int, total: int) -> str:
    """Return the count of this run and, if it resumes another, the total of both."""
    return f"{total:,} in all" if here == total else f"{here:,} in this run, {total:,} in all"


def digits(value: float) -> str:
    """Return a number with three significant digits."""
    if value == 0:
        return "0"
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def duration(ns: float) -> str:
    """Return nanoseconds for a sentence: `24.6 ms`, `3 ms`."""
    return _without_zeros(seconds(ns / 1e9))


def amount(value: float, unit: str = "B") -> str:
    """Return an amount for a sentence: `75.5 MB`, `2 GFLOP`."""
    return _without_zeros(size(value, unit))


def times(value: float) -> str:
    """Return a count per something, or a ratio, for a sentence: `64`, `2.5`, `0.25`."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def short_percent(share: float) -> str:
    """Return a share for a sentence: `42 %`, `4.2 %`."""
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def _without_zeros(text: str) -> str:
    number, unit = text.split(" ", 1)
    return f"{number.rstrip('0').rstrip('.')} {unit}" if "." in number else text
