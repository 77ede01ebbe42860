"""Shared by the benchmarks: interleaved timing, intervals, the table and the JSON format.

The speed of a laptop or a shared server varies by several per cent within seconds. So all variants run in one
process, in short alternating blocks in random order; ratios are computed within each round, and the median over the
rounds has a bootstrap interval.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np
import psutil
from numpy.typing import NDArray

from hotloop.clock import now_ns

Times = NDArray[np.float64]
SCHEMA = 1
LIMIT = "limit"
"""`peer_name` of a row that compares with a limit instead of a peer."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 90 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison. Lower is better in every unit used here, so `ratio` is peer / ours: above 1 is good."""

    name: str
    ours: float
    peer: float
    peer_name: str
    unit: str
    ratio: float
    low: float
    high: float
    asked: float = 0.0
    """Target ratio; 0 if there is no target."""

    @property
    def verdict(self) -> str:
        """Whether the target is met: by the whole interval, only by its middle, or not."""
        if not self.asked:
            return ""
        if self.low >= self.asked:
            return "yes"
        return "in the middle" if self.ratio >= self.asked else "no"


def interleave(
    variants: Mapping[str, Callable[[], object]],
    rounds: int,
    calls: int,
    after_block: Callable[[str], bool] = lambda name: True,
    seed: int = 1,
) -> dict[str, Times]:
    """Time variants in short blocks, each variant once a round, in random order.

    The first call of a block is not timed: other variants have left the caches cold.

    Args:
        variants: Functions to time, by name.
        rounds: Blocks per variant.
        calls: Timed calls in a block.
        after_block: Called after each block; if it returns False, the round is discarded and repeated.
        seed: Random seed of the order.

    Returns:
        Nanoseconds per call by name, `[rounds]`; the i-th entries of all variants are from the same round.
    """
    order = list(variants)
    shuffle = random.Random(seed).shuffle
    times = {name: np.empty(rounds) for name in order}
    for _ in range(5):
        for call in variants.values():
            call()
    done, tried = 0, 0
    while done < rounds:
        if tried > 3 * rounds + 100:
            raise RuntimeError(f"only {done} of {rounds} rounds were usable in {tried}: is a variant never valid?")
        tried += 1
        shuffle(order)
        usable = True
        for name in order:
            times[name][done] = _block(variants[name], calls)
            usable &= after_block(name)
        done += usable
    return times


def _block(call: Callable[[], object], calls: int) -> float:
    call()
    begin = now_ns()
    for _ in range(calls):
        call()
    return (now_ns() - begin) / calls


def estimate(statistic: Callable[..., float], *columns: Times, resamples: int = 2000) -> Estimate:
    """Estimate a statistic of columns with matching entries by resampling rounds."""
    generator = np.random.default_rng(1)
    size = len(columns[0])
    values = []
    for _ in range(resamples):
        chosen = generator.integers(0, size, size)
        values.append(statistic(*(column[chosen] for column in columns)))
    low, high = np.percentile(values, [5, 95])
    return Estimate(float(statistic(*columns)), float(low), float(high))


def ratio_of(over: Times, under: Times) -> float:
    """Median over the rounds of the ratio of two variants' times."""
    return float(np.median(over / under))


def mean_ratio_of(over: Times, under: Times) -> float:
    """Mean over the rounds of that ratio, with 10 % trimmed at either end.

    For variants that are slower only in some rounds, which a median would ignore.
    """
    ratios = np.sort(over / under)
    cut = len(ratios) // 10
    return float(np.mean(ratios[cut : len(ratios) - cut]))


def extra_of(with_it: Times, without: Times) -> float:
    """Median over the rounds of the difference of two variants' times, in ns."""
    return float(np.median(with_it - without))


def against_limit(name: str, found: Estimate, limit: float, unit: str) -> Row:
    """Create the row for a number that must not exceed a limit."""
    # Noise can make a small cost look like zero or less: clamp at a thousandth of the limit.
    value, low, high = (max(each, limit / 1000) for each in (found.value, found.low, found.high))
    return Row(name, found.value, limit, LIMIT, unit, limit / value, limit / high, limit / low, asked=1.0)


def exactly(value: float) -> Estimate:
    """A number measured once, or without random variation."""
    return Estimate(value, value, value)


def spread(values: list[float]) -> Estimate:
    """The median of a few repetitions, with the minimum and maximum as bounds."""
    return Estimate(float(np.median(values)), min(values), max(values))


def machine() -> str:
    """Describe the machine in one line."""
    versions = [f"Python {platform.python_version()}"]
    for name in ("torch", "numpy"):
        if name in sys.modules:
            versions.append(f"{name} {sys.modules[name].__version__}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{_processor()}, {cores} cores, {platform.system()}, {', '.join(versions)}"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def say(text: str) -> None:
    """Report progress, on stderr so that stdout is only the result."""
    print(text, file=sys.stderr, flush=True)


def number(value: float) -> str:
    """Format a number with three significant digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def cells(row: Row) -> list[str]:
    """The row as text: name, ours, peer, ratio, interval, asked, shown."""
    asked = f"≥ {number(row.asked)}" if row.asked else ""
    limit = "at most " if row.peer_name == LIMIT else ""
    # Ratios close to 1 need more digits.
    text = "{:.3f}".format if row.unit == "×" else number
    peer = f"{limit}{text(row.peer)} {row.unit}"
    if not limit:
        peer += f" ({row.peer_name})"
    interval = f"{text(row.low)} to {text(row.high)}"
    return [row.name, f"{text(row.ours)} {row.unit}", peer, text(row.ratio), interval, asked, row.verdict]


HEADINGS = ["what", "hotloop", "beside it", "ratio", "90 % interval", "asked", "shown"]


def print_table(rows: list[Row]) -> None:
    """Print rows as an aligned table."""
    lines = [HEADINGS, *(cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def recorder_process() -> psutil.Process:
    """Return the process that records this one, once it does."""
    from hotloop.spans import _hot_path

    deadline = now_ns() + 20_000_000_000
    while not (number := _hot_path.get("recorder_pid")):
        if now_ns() > deadline:
            raise RuntimeError("no process records this one: the C extensions are missing, or it has ended")
        time.sleep(0.01)
    return psutil.Process(number)


def main(run: Callable[[bool], list[Row]], about: str | None) -> None:
    """Run a benchmark as a program: `--json` for machine-readable rows, `--quick` for a trial run."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print rows as JSON instead of a table")
    parser.add_argument("--quick", action="store_true", help="few repetitions, to check that it runs")
    arguments = parser.parse_args()
    rows = run(arguments.quick)
    if arguments.json:
        where = machine()
        print(json.dumps([{"schema": SCHEMA, **asdict(row), "machine": where} for row in rows], indent=1))
        return
    print(f"\n{machine()}\n")
    print_table(rows)
