"""Is what the recorder says it cost true? Recorded time minus that cost, beside the time of the unrecorded loop.

Each loop runs in one process, recorded and unrecorded in turn. The recorder needs some seconds to learn what a span
costs in place, so a turn is not short; what drifts between turns is why there are several, in random order.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import numpy as np
import torch
from loops import LOOPS, Iteration, LoopCase
from measure import Estimate, Row, against_limit, estimate, main, ratio_of, say

from hotloop.clock import now_ns
from hotloop.record.session import record
from hotloop.spans import recording
from hotloop.trace.load import load

LIMIT_PERCENT = 2.0
WARM_S = 0.5


def run(quick: bool) -> list[Row]:
    """Measure everything this bench shows."""
    torch.set_num_threads(1)
    pairs, seconds = (2, 1.5) if quick else (5, 4.0)
    rows = []
    for case in LOOPS:
        say(f"correction: {case.title}")
        rows += measure_loop(case, pairs, seconds)
    return rows


def measure_loop(case: LoopCase, pairs: int, seconds: float) -> list[Row]:
    """Compare one loop: how far recording slows it, and how far the corrected time is off."""
    iteration = case.make()
    _mean_ns(iteration, WARM_S)
    plain, recorded, corrected = np.empty(pairs), np.empty(pairs), np.empty(pairs)
    order = random.Random(1)
    for i in range(pairs):
        if order.random() < 0.5:
            recorded[i], corrected[i] = _recorded_ns(case, iteration, seconds)
            plain[i] = _mean_ns(iteration, seconds)
        else:
            plain[i] = _mean_ns(iteration, seconds)
            recorded[i], corrected[i] = _recorded_ns(case, iteration, seconds)
    slow_down, left = estimate(ratio_of, recorded, plain), estimate(ratio_of, corrected, plain)
    us = np.median(plain) / 1e3
    say(f"  {us:.1f} µs an iteration; recorded × {slow_down.value:.4f}, corrected × {left.value:.4f}")
    return [
        Row(
            f"{case.title}: recorded", slow_down.value * us, us, "unrecorded", "µs",
            1 / slow_down.value, 1 / slow_down.high, 1 / slow_down.low,
        ),
        against_limit(f"{case.title}: error of the corrected time", _distance_percent(left), LIMIT_PERCENT, "%"),
    ]  # fmt: skip


def _distance_percent(ratio: Estimate) -> Estimate:
    """How far a ratio is from 1, either way; the bounds are the nearest and the farthest of its interval."""
    ends = (abs(ratio.low - 1), abs(ratio.high - 1))
    nearest = 0.0 if ratio.low <= 1 <= ratio.high else min(ends)
    return Estimate(100 * abs(ratio.value - 1), 100 * nearest, 100 * max(ends))


def _recorded_ns(case: LoopCase, iteration: Iteration, seconds: float) -> tuple[float, float]:
    """Time an iteration while it is recorded; return that, and that minus what the recorder says it cost."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        with record(path, hooks=case.hooks):
            took = _mean_ns(iteration, seconds)
            if not recording():
                raise RuntimeError(f"the recorder stopped during {case.title}: its warning above says why")
        share = load(path).main.overhead.share
    return took, took * (1 - share)


def _mean_ns(iteration: Iteration, seconds: float) -> float:
    begin, calls = now_ns(), 0
    while (took := now_ns() - begin) < seconds * 1e9:
        iteration()
        calls += 1
    return took / calls


if __name__ == "__main__":
    main(run, __doc__)
