"""Is the reported overhead correct? Compares recorded time minus overhead with the time of the unrecorded loop.

Each loop runs in one recording, in turns of a twentieth of a second: recorded, and with the recorder paused (its
spans do nothing and its thread waits for its own lock). Longer turns would measure the machine, whose speed drifts by
tens of per cent within seconds. The background thread does its work for a paused turn in a recorded one.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from loops import LOOPS, Iteration, LoopCase
from measure import Estimate, Row, against_limit, estimate, main, mean_ratio_of, say

from hotloop.clock import now_ns
from hotloop.profiling.recorder.hooks.patching import MISSING, Patches
from hotloop.profiling.recorder.session import Session, record
from hotloop.profiling.trace.load import load
from hotloop.spans import registry
from hotloop.spans.registry import Span, recording

LIMIT_PERCENT = 2.0
TURN_NS = 50e6


def run(quick: bool) -> list[Row]:
    """Measure everything this bench shows."""
    torch.set_num_threads(1)
    rows = []
    for case in LOOPS:
        say(f"correction: {case.title}")
        rows += measure_loop(case, 30 if quick else 300)
    return rows


def measure_loop(case: LoopCase, pairs: int) -> list[Row]:
    """Measure one loop: the slowdown by recording, and the error of the corrected time."""
    iteration = case.make()
    plain, recorded = np.empty(pairs), np.empty(pairs)
    order = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        with record(path, hooks=case.hooks) as session:
            for i in range(-pairs // 10, pairs):
                for turn in order.sample(("recorded", "plain"), 2):
                    if turn == "recorded":
                        recorded[i] = _mean_ns(iteration)
                    else:
                        with paused(session):
                            plain[i] = _mean_ns(iteration)
                if not recording():
                    raise RuntimeError(f"the recorder stopped during {case.title}: its warning above says why")
        # The recorder was paused half of the time: its overhead belongs to the other half.
        share = 2 * load(path).main.overhead.share
    slow_down, left = estimate(mean_ratio_of, recorded, plain), estimate(mean_ratio_of, recorded * (1 - share), plain)
    us = float(np.median(plain)) / 1e3
    say(f"  {us:.1f} µs an iteration; recorded × {slow_down.value:.4f}, corrected × {left.value:.4f}")
    return [
        Row(
            f"{case.title}: recorded", slow_down.value * us, us, "paused", "µs",
            1 / slow_down.value, 1 / slow_down.high, 1 / slow_down.low,
        ),
        against_limit(f"{case.title}: error of the corrected time", _distance_percent(left), LIMIT_PERCENT, "%"),
    ]  # fmt: skip


@contextmanager
def paused(session: Session) -> Iterator[None]:
    """Make every span and counter a no-op and pause the background thread; restore everything afterwards."""
    assert session.recorder is not None
    with session.recorder.resting():
        every = list(registry.known_spans())
        were = [type(each) for each in every]
        registry._recording = False
        hooks = _hooks_of(session)
        try:
            for each in every:
                each.__class__ = Span
            for owner, name, old, _ in hooks:
                setattr(owner, name, old)
            yield
        finally:
            for owner, name, _, new in hooks:
                setattr(owner, name, new)
            for each, was in zip(every, were, strict=True):
                each.__class__ = was
            registry._recording = True


def _hooks_of(session: Session) -> list[tuple[Any, str, Any, Any]]:
    """The attributes that the hooks have replaced: (owner, name, old, new)."""
    uninstall = next(iter(session._undo), None)
    for cell in getattr(uninstall, "__closure__", None) or ():
        if isinstance(cell.cell_contents, Patches):
            return [each for each in cell.cell_contents._done if each[2] is not MISSING]
    return []


def _distance_percent(ratio: Estimate) -> Estimate:
    """Distance of a ratio from 1 in either direction; the bounds are the smallest and largest in its interval."""
    ends = (abs(ratio.low - 1), abs(ratio.high - 1))
    nearest = 0.0 if ratio.low <= 1 <= ratio.high else min(ends)
    return Estimate(100 * abs(ratio.value - 1), 100 * nearest, 100 * max(ends))


def _mean_ns(iteration: Iteration) -> float:
    iteration()
    begin, calls = now_ns(), 0
    while (took := now_ns() - begin) < TURN_NS:
        iteration()
        calls += 1
    return took / calls


if __name__ == "__main__":
    main(run, __doc__)
