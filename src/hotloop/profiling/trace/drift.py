"""Drift: does a run slow down, and by which factor? Pure functions on a `Trace`.

wall time = episodes × steps an episode × cost of a step. An early and a late part of the loop are compared, and the
three ratios multiply to the ratio of their times, whatever happened. Learning that begins is a step, not a drift: the
time before the first updates, and the first window, in which everything is called for the first time, are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hotloop.profiling.trace.model import Stretch, Trace
from hotloop.profiling.trace.summary import SHORT_WINDOW, window_amounts

Floats = NDArray[np.float64]
Verdict = Literal["cost", "episodes", "cost and episodes", "machine", "machine and episodes"]
BLOCKS = 6
"""Into so many stretches of equal time the loop is cut, to see whether a change goes one way."""
LEAST_WINDOWS = 6
LEAST_EPISODES = 10
"""In each of the two parts, before the length of an episode is compared."""
LEAST_COST, LEAST_LENGTH = 1.15, 1.25
"""From these factors on, up or down, a change is worth telling."""
LEAST_TREND = 0.6
"""Kendall's tau of the blocks: 12 of 15 pairs in the same order."""
LEAST_ONE_WAY = 0.8
"""Part of the differences between blocks that growth which never turns back explains; chance explains 0.3 of six."""
SURE = 2.0
"""Standard deviations of a ratio of mean lengths, if lengths were spread as those of games that end by chance."""
ALIKE = 0.6
"""A machine that slows down slows all phases: each by at least this part of the whole change, as logarithms."""
LARGE_PHASE = 0.1
ALL_TIMED = 0.8
"""Inside a timed call, at least this part of the usual calls was timed too."""


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the loop."""

    from_s: float
    until_s: float
    """Both since the loop began."""
    seconds: float
    env_steps: float
    episodes: float
    updates: float

    @property
    def steps_per_episode(self) -> float | None:
        """Env steps for each episode that ended; None if none did."""
        return self.env_steps / self.episodes if self.episodes else None

    @property
    def cost_per_step_s(self) -> float:
        """Wall time for each env step."""
        return self.seconds / self.env_steps


@dataclass(frozen=True, slots=True)
class Factors:
    """Late over early. seconds = episodes × steps_per_episode × cost_per_step = env_steps × cost_per_step."""

    seconds: float
    episodes: float | None
    """None, like the next, if no episode ended in one of the parts."""
    steps_per_episode: float | None
    env_steps: float
    cost_per_step: float


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """What a phase takes of an env step, in seconds."""

    phase: str
    early_s: float
    late_s: float


@dataclass(frozen=True, slots=True)
class Drift:
    """A change over the run that is worth telling."""

    verdict: Verdict
    early: Part
    late: Part
    factors: Factors
    phases: tuple[PhaseCost, ...]
    """The one that changed most is first."""
    learning_began_s: float | None
    """Where updates began after the loop did; what was before is not compared."""


@dataclass(frozen=True)
class Blocks:
    """The comparable part of the loop in `BLOCKS` stretches of about equal time."""

    place: NDArray[np.int64]
    """For each window of the trace the block it belongs to, -1 for none."""
    seconds: Floats
    counts: Mapping[str, Floats]
    steps_before: Floats
    """Env steps from the begin of the loop to the middle of each block."""
    from_s: Floats
    until_s: Floats
    learning_began_s: float | None

    def part(self, first: int, last: int) -> Part:
        """Return blocks `first` to `last`, both included, as one stretch."""
        inside = slice(first, last + 1)
        amounts = [float(self.counts[name][inside].sum()) for name in ("env_steps", "episodes", "updates")]
        return Part(float(self.from_s[first]), float(self.until_s[last]), float(self.seconds[inside].sum()), *amounts)


def cut(trace: Trace) -> Blocks | None:
    """Cut the comparable part of the loop into blocks; None if it is too short, or steps were not counted."""
    starts, ends, steps = window_amounts(trace, "env_steps")
    counts = {name: window_amounts(trace, name)[2] for name in ("episodes", "updates")} | {"env_steps": steps}
    if not len(starts) or not steps.any():
        return None
    seconds = (ends - starts) / 1e9
    whole = (seconds > 0) & (seconds >= SHORT_WINDOW * np.median(seconds))
    began = int(np.flatnonzero(counts["updates"])[0]) if counts["updates"].any() else 0
    chosen = np.flatnonzero(whole & (np.arange(len(starts)) > began))
    if len(chosen) < LEAST_WINDOWS:
        return None
    # A window belongs to the block in which its middle lies, on a clock that runs in the chosen windows only.
    clock = np.cumsum(seconds[chosen]) - seconds[chosen] / 2
    block = np.minimum((clock / seconds[chosen].sum() * BLOCKS).astype(np.int64), BLOCKS - 1)
    first = np.searchsorted(block, np.arange(BLOCKS), "left")
    last = np.searchsorted(block, np.arange(BLOCKS), "right") - 1
    per_block = {name: _by_block(block, each[chosen]) for name, each in counts.items()}
    if not (per_block["env_steps"] > 0).all():
        return None
    place = np.full(len(trace.main.windows.start_ns), -1, np.int64)
    place[np.flatnonzero(trace.main.windows.in_loop)[chosen]] = block
    middles = (np.cumsum(steps) - steps / 2)[chosen]
    return Blocks(
        place=place,
        seconds=_by_block(block, seconds[chosen]),
        counts=per_block,
        steps_before=_by_block(block, middles) / np.bincount(block, minlength=BLOCKS),
        from_s=(starts[chosen[first]] - trace.loop_start_ns) / 1e9,
        until_s=(ends[chosen[last]] - trace.loop_start_ns) / 1e9,
        learning_began_s=float((starts[began] - trace.loop_start_ns) / 1e9) if began else None,
    )


def _by_block(block: NDArray[np.int64], values: NDArray[np.number]) -> Floats:
    sums = np.zeros(BLOCKS)
    np.add.at(sums, block, values)
    return sums


def drift(trace: Trace) -> Drift | None:
    """Compare the first third of a loop with its last; None if nothing changed that is worth telling."""
    blocks = cut(trace)
    if blocks is None:
        return None
    early, late = blocks.part(0, BLOCKS // 3 - 1), blocks.part(BLOCKS - BLOCKS // 3, BLOCKS - 1)
    factors = compare(early, late)
    phases = phase_costs(trace, (early, late))
    cost = blocks.seconds / blocks.counts["env_steps"]
    dearer = worth(factors.cost_per_step, LEAST_COST) and goes_one_way(cost)
    longer = _episodes_changed(blocks, early, late, factors)
    if not dearer and not longer:
        return None
    if dearer and _alike(phases, factors.cost_per_step):
        verdict: Verdict = "machine and episodes" if longer else "machine"
    else:
        verdict = "cost and episodes" if dearer and longer else "cost" if dearer else "episodes"
    return Drift(verdict, early, late, factors, phases, blocks.learning_began_s)


def compare(early: Part, late: Part) -> Factors:
    """Return the ratios of two parts. They multiply to the ratio of their times."""
    episodes = late.episodes / early.episodes if early.episodes > 0 and late.episodes > 0 else None
    steps = late.env_steps / early.env_steps
    return Factors(
        seconds=late.seconds / early.seconds,
        episodes=episodes,
        steps_per_episode=steps / episodes if episodes else None,
        env_steps=steps,
        cost_per_step=late.cost_per_step_s / early.cost_per_step_s,
    )


def worth(factor: float, least: float) -> bool:
    """Say whether a factor is far enough from 1, up or down."""
    return abs(math.log(factor)) >= math.log(least)


def goes_one_way(values: Floats, least: float = LEAST_TREND) -> bool:
    """Say whether values rise, or fall, nearly all the way (Kendall's tau)."""
    return abs(trend(values)) >= least


def trend(values: Floats) -> float:
    """Return Kendall's tau of values against time: 1 if they always rise, -1 if they always fall."""
    n = len(values)
    later = np.sign(values[None, :] - values[:, None])[np.triu_indices(n, 1)]
    return float(later.sum()) / (n * (n - 1) / 2)


def one_way(values: Floats) -> float:
    """Return the part of the variance that values explain which only rise, or only fall (isotonic regression).

    Unlike a count of ordered pairs, it knows a growth that ends, however the values waver afterwards.
    """
    whole = float(((values - values.mean()) ** 2).sum())
    misfits = [float(((each - _rising(each)) ** 2).sum()) for each in (values, -values)]
    return 1.0 - min(misfits) / whole if whole > 0 else 0.0


def _rising(values: Floats) -> Floats:
    """Return the nearest values that never fall: the largest over j ≤ i of the smallest mean from j to k ≥ i."""
    n = len(values)
    return np.array([
        max(min(values[j : k + 1].mean() for k in range(i, n)) for j in range(i + 1)) for i in range(n)
    ])  # fmt: skip


def node_costs(trace: Trace) -> dict[int, Floats]:
    """Return the seconds a call of each node takes by itself in each block; NaN where that is not known.

    Calls that were only counted do not matter for it, so this holds for thinned spans too. But where a span is
    timed and those in it are not, their time is the span's own, and says nothing.
    """
    thread, found = trace.thread, {}
    timed = {node.id: np.array([_timed(stretch, node.id) for stretch in thread.stretches]) for node in thread.nodes}
    for node in thread.nodes:
        inside = [timed[child.id] for child in thread.children.get(node.id, ()) if child.kind == "span"]
        known = timed[node.id] > 0
        for each in inside:
            often = each / np.maximum(timed[node.id], 1.0)
            known &= often >= ALL_TIMED * often.max(initial=0.0)
        if known.any():
            self_ns = np.array([stretch[node.id].self_ns if node.id in stretch else 0 for stretch in thread.stretches])
            found[node.id] = np.where(known, self_ns / np.maximum(timed[node.id], 1.0) / 1e9, np.nan)
    return found


def _timed(stretch: Mapping[int, Stretch], node: int) -> float:
    return float(stretch[node].timed) if node in stretch else 0.0


def node_calls(trace: Trace) -> dict[int, Floats]:
    """Return how often each node was called in each block, timed or not."""
    found: dict[int, Floats] = {}
    for i, stretch in enumerate(trace.thread.stretches):
        for node, seen in stretch.items():
            found.setdefault(node, np.zeros(BLOCKS))[i] = seen.calls
    return found


def phase_costs(trace: Trace, parts: tuple[Part, Part]) -> tuple[PhaseCost, ...]:
    """Return what each phase takes of a step, early and late; the one that changed most is first."""
    calls, third = node_calls(trace), BLOCKS // 3
    by_phase: dict[str, list[float]] = {}
    for node, cost in node_costs(trace).items():
        if node not in trace.thread.by_id:
            continue
        for i, (inside, part) in enumerate(zip((slice(third), slice(-third, None)), parts, strict=True)):
            seconds = float(np.nansum(cost[inside] * calls[node][inside]))
            seen = float(calls[node][inside][~np.isnan(cost[inside])].sum())
            # A block without a timed call is taken to be like the other one.
            seconds *= float(calls[node][inside].sum()) / seen if seen else 0.0
            for phase, share in trace.thread.phase_shares[node]:
                by_phase.setdefault(str(phase), [0.0, 0.0])[i] += seconds / part.env_steps * share
    rows = [PhaseCost(phase, early, late) for phase, (early, late) in by_phase.items()]
    return tuple(sorted(rows, key=lambda row: (-abs(row.late_s - row.early_s), row.phase)))


def _episodes_changed(blocks: Blocks, early: Part, late: Part, factors: Factors) -> bool:
    if factors.steps_per_episode is None or min(early.episodes, late.episodes) < LEAST_EPISODES:
        return False
    # Agents learn fast at first and then no more, so games often grow in the first block only.
    chance = SURE * math.sqrt(1.0 / early.episodes + 1.0 / late.episodes)
    least = max(LEAST_LENGTH, math.exp(chance))
    length = np.log(blocks.counts["env_steps"] / np.maximum(blocks.counts["episodes"], 1.0))
    return worth(factors.steps_per_episode, least) and one_way(length) >= LEAST_ONE_WAY


def _alike(phases: tuple[PhaseCost, ...], whole: float) -> bool:
    """Say whether all large phases changed together: then it is the machine."""
    step = sum(row.early_s for row in phases)
    large = [row for row in phases if row.early_s >= LARGE_PHASE * step]
    return len(large) > 1 and all(
        row.late_s > 0 and row.early_s > 0 and math.log(row.late_s / row.early_s) / math.log(whole) >= ALIKE
        for row in large
    )
