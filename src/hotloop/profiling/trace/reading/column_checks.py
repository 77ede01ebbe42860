"""The values of a run's tables, checked: each in its range, and every column with a sum that fits 64 bits.

A table is kept up to its first row that is out of range, as a stream is kept up to its first batch that is not whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hotloop.profiling.trace.build.columns import Table
from hotloop.profiling.trace.build.histogram import BUCKETS, percentile_ns
from hotloop.profiling.trace.reading import limits
from hotloop.profiling.trace.reading.arrow import Stream, column_numbers
from hotloop.profiling.trace.reading.decode import Between
from hotloop.profiling.trace.stream_store import TableFile

INDEX = Between(0, (1 << 31) - 1)
STACK = Between(-1, (1 << 31) - 1)
"""-1 is for stacks beyond those that were kept."""
CLOCK = Between(-limits.LARGEST, limits.LARGEST)
AMOUNT = Between(0, limits.LARGEST)
SIGNED = Between(-limits.LARGEST, limits.LARGEST)
PERCENT = Between(-1, 1_000)
"""-1 where the machine does not say."""
SPECIAL = {
    **dict.fromkeys(("window", "thread", "node", "code", "counter"), INDEX),
    **dict.fromkeys(("start_ns", "end_ns"), CLOCK),
    **dict.fromkeys(("amount", "grown_bytes"), SIGNED),
    "stack": STACK,
    "gpu_busy_percent": PERCENT,
}
"""Columns that are not amounts from 0 on."""
SUMMED = (AMOUNT, SIGNED)


def check_table(file: TableFile) -> tuple[Table, str]:
    """Return the rows of a table up to the first that is out of range, and what is wrong with it; "" if none is."""
    columns = file.columns
    rows, problem = len(next(iter(columns.values()))), ""
    for name, column in columns.items():
        bad = _first(~_in_range(name, column[:rows]))
        if bad is not None:
            rows, problem = bad, f"{name} is {column[bad]} in row {bad}"
    if "end_ns" in columns:
        bad = _first(columns["end_ns"][:rows] < columns["start_ns"][:rows])
        if bad is not None:
            rows, problem = bad, f"row {bad} ends before it begins"
    return {name: column[:rows].astype(np.int64) for name, column in columns.items()}, problem


def check_memory(table: Table) -> tuple[Table, str]:
    """Return the rows of windows that follow one another, up to the first that does not, and what is wrong with it."""
    window, start = table["window"], table["start_ns"]
    order = np.argsort(window, kind="stable")
    ordered = {name: column[order] for name, column in table.items()}
    bad = _first((np.diff(window[order], prepend=-1) <= 0) | (np.diff(start[order], prepend=start[order][:1]) < 0))
    problem = "" if bad is None else f"window {window[order][bad]} does not follow the one before it"
    rows = len(window) if bad is None else bad
    if rows > limits.WINDOWS:
        rows, problem = limits.WINDOWS, f"there are more than {limits.WINDOWS} windows"
    return {name: column[:rows] for name, column in ordered.items()}, problem


def _in_range(name: str, column: NDArray[np.integer]) -> NDArray[np.bool_]:
    bounds = SPECIAL.get(name, AMOUNT)
    inside = (column >= bounds.least) & (column <= bounds.most)
    if any(bounds is each for each in SUMMED):  # clock values have the same range, but are not summed
        inside &= np.cumsum(np.abs(column.astype(np.float64))) <= limits.LARGEST_SUM
    return inside


def _first(wrong: NDArray[np.bool_]) -> int | None:
    return int(wrong.argmax()) if wrong.any() else None


@dataclass(frozen=True, slots=True)
class Total:
    """What is known of whole calls of a node: a row of `totals.arrow`."""

    min_ns: int = 0
    max_ns: int = 0
    grown_bytes: int = 0
    peak_bytes: int = 0
    gpu_bytes: int = 0
    p50_ns: int = 0
    p95_ns: int = 0


Totals = Mapping[tuple[int, int], Total]
"""By thread and node."""
NO_TOTAL = Total()
NUMBERS = ("min_ns", "max_ns", "grown_bytes", "peak_bytes", "gpu_bytes")


def check_totals(stream: Stream) -> tuple[Totals, str]:
    """Return the rows of the totals table up to the first that is wrong, and what is wrong with it; "" if none is."""
    found: dict[tuple[int, int], Total] = {}
    for batch in stream.batches:
        file = TableFile({n: column_numbers(batch.column(n)) for n in ("thread", "node", *NUMBERS)}, closed=True)
        table, problem = check_table(file)
        buckets, counts = (_Lists.of(batch.column(name)) for name in ("buckets", "counts"))
        columns = [table[name].tolist() for name in ("thread", "node", *NUMBERS)]
        for row, (thread, node, low, high, grown, peak, gpu) in enumerate(zip(*columns, strict=True)):
            bucket, n = buckets.at(row), counts.at(row)
            if not _is_histogram(bucket, n):
                return found, f"the histogram in row {row} is not one"
            p50, p95 = (percentile_ns(bucket.tolist(), n.tolist(), share) for share in (0.5, 0.95))
            found[thread, node] = Total(low, high, grown, peak, gpu, p50, p95)
        if problem:
            return found, problem
    return found, stream.damage


@dataclass(frozen=True, slots=True)
class _Lists:
    """A column of lists."""

    ends: NDArray[np.integer]
    values: NDArray[np.integer]

    @staticmethod
    def of(column: pa.Array) -> _Lists:
        return _Lists(column_numbers(column.offsets), column_numbers(column.values))

    def at(self, row: int) -> NDArray[np.integer]:
        return self.values[self.ends[row] : self.ends[row + 1]]


def _is_histogram(bucket: NDArray[np.integer], n: NDArray[np.integer]) -> bool:
    """Return whether these can be buckets and the numbers of calls in them."""
    if len(bucket) != len(n) or len(n) > BUCKETS:
        return False
    return bool(((bucket >= 0) & (bucket < BUCKETS) & (n >= 0) & (n <= limits.LARGEST)).all())
