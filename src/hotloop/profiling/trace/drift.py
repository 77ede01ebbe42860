"""Drift: does a run slow down, and by which factor? Pure functions on a `Trace`.

wall time = episodes × steps per episode × cost per step. An early and a late part of the loop are compared; the three
ratios always multiply to the ratio of their times. The start of learning is a step, not a drift, so the time before the
first update is left out, and so is the first window, in which everything is called for the first time.
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
"""Number of stretches of equal time into which the loop is cut, to test whether a change goes one way."""
LEAST_WINDOWS = 6
LEAST_EPISODES = 10
"""Required in each of the two parts to compare the length of episodes."""
LEAST_COST, LEAST_LENGTH = 1.15, 1.25
"""Smallest factors, up or down, that are reported."""
LEAST_TREND = 0.6
"""Kendall's tau of the blocks: 12 of 15 pairs in the same order."""
LEAST_ONE_WAY = 0.8
"""Share of the variance between blocks that monotonic growth must explain. By chance it explains 0.3 of six blocks."""
SURE = 2.0
"""Standard deviations of a ratio of mean lengths, assuming exponentially distributed lengths."""
ALIKE = 0.6
"""If the machine slows down, each phase changes by at least this fraction of the total change, in logarithms."""
LARGE_PHASE = 0.1
ALL_TIMED = 0.8
"""Inside a timed call, at least this fraction of the usual number of calls must have been timed as well."""


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """Seconds that a phase takes per env step."""

    phase: str
    early_s: float
    late_s: float


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the loop."""

    from_s: float
    until_s: float
    """Both since the start of the loop."""
    seconds: float
    env_steps: float
    episodes: float
    updates: float

    @property
    def steps_per_episode(self) -> float | None:
        """Env steps per finished episode; None if none finished."""
        return self.env_steps / self.episodes if self.episodes else None

    @property
    def cost_per_step_s(self) -> float:
        """Wall time per env step."""
        return self.seconds / self.env_steps


@dataclass(frozen=True, slots=True)
class Factors:
    """Late over early. seconds = episodes × steps_per_episode × cost_per_step = env_steps × cost_per_step."""

    seconds: float
    episodes: float | None
    """None, like `steps_per_episode`, if no episode ended in one of the parts."""
    steps_per_episode: float | None
    env_steps: float
    cost_per_step: float


@dataclass(frozen=True, slots=True)
class Drift:
    """A significant change over the run."""

    verdict: Verdict
    early: Part
    late: Part
    factors: Factors
    phases: tuple[PhaseCost, ...]
    """Largest change first."""
    learning_began_s: float | None
    """When updates started, if later than the loop; the time before that is not compared."""


@dataclass(frozen=True)
class Blocks:
    """The comparable part of the loop in `BLOCKS` stretches of about equal time."""

    place: NDArray[np.int64]
    """Block of each window of the trace, -1 for none."""
    seconds: Floats
    counts: Mapping[str, Floats]
    steps_before: Floats
    """Env steps from the start of the loop to the middle of each block."""
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
    # A window belongs to the block that contains its middle, on a clock that runs only in the chosen windows.
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
    """Compare the first third of a loop with its last; None if there was no significant change."""
    blocks = cut(trace)
    if blocks is None:
        return None
    early, late = blocks.part(0, BLOCKS // 3 - 1), blocks.part(BLOCKS - BLOCKS // 3, BLOCKS - 1)
    factors = compare(early, late)
    phases = phase_costs(trace, (early, late))
    cost = blocks.seconds / blocks.counts["env_steps"]
    dearer = worth(factors.cost_per_step, LEAST_COST) and abs(trend(cost)) >= LEAST_TREND
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
    """Return whether a factor is far enough from 1, up or down."""
    return abs(math.log(factor)) >= math.log(least)


def trend(values: Floats) -> float:
    """Return Kendall's tau of values against time: 1 if they always rise, -1 if they always fall."""
    n = len(values)
    later = np.sign(values[None, :] - values[:, None])[np.triu_indices(n, 1)]
    return float(later.sum()) / (n * (n - 1) / 2)


def one_way(values: Floats) -> float:
    """Return the share of the variance that a monotonic curve explains (isotonic regression).

    Unlike a count of ordered pairs, it recognises growth that levels off and is followed by noise.
    """
    whole = float(((values - values.mean()) ** 2).sum())
    misfits = [float(((each - _rising(each)) ** 2).sum()) for each in (values, -values)]
    return 1.0 - min(misfits) / whole if whole > 0 else 0.0


def _rising(values: Floats) -> Floats:
    """Return the closest non-decreasing values: for each i, the max over j ≤ i of the min over k ≥ i of mean(j..k)."""
    n = len(values)
    return np.array([max(min(values[j : k + 1].mean() for k in range(i, n)) for j in range(i + 1)) for i in range(n)])


def node_costs(trace: Trace) -> dict[int, Floats]:
    """Return the self time in seconds per call of each node in each block; NaN where it is unknown.

    It depends only on timed calls, so it is valid for thinned spans as well. Where a span is timed and the spans inside
    it are not, their time counts as its self time, so the block is left out.
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
    """Return the number of calls of each node in each block, timed or not."""
    found: dict[int, Floats] = {}
    for i, stretch in enumerate(trace.thread.stretches):
        for node, seen in stretch.items():
            found.setdefault(node, np.zeros(BLOCKS))[i] = seen.calls
    return found


def phase_costs(trace: Trace, parts: tuple[Part, Part]) -> tuple[PhaseCost, ...]:
    """Return the time of each phase per step, early and late, largest change first."""
    calls, third = node_calls(trace), BLOCKS // 3
    by_phase: dict[str, list[float]] = {}
    for node, cost in node_costs(trace).items():
        if node not in trace.thread.by_id:
            continue
        for i, (inside, part) in enumerate(zip((slice(third), slice(-third, None)), parts, strict=True)):
            # Blocks without a timed call are assumed to be like the others of this part, or else of the whole loop.
            mean_s = _mean_cost(cost[inside], calls[node][inside])
            seconds = (_mean_cost(cost, calls[node]) if mean_s is None else mean_s) * calls[node][inside].sum()
            by_phase.setdefault(str(trace.thread.by_id[node].phase), [0.0, 0.0])[i] += seconds / part.env_steps
    rows = [PhaseCost(phase, early, late) for phase, (early, late) in by_phase.items()]
    return tuple(sorted(rows, key=lambda row: (-abs(row.late_s - row.early_s), row.phase)))


def _mean_cost(cost: Floats, calls: Floats) -> float | None:
    """Return the mean of the known costs of a call, weighted by calls; None if none is known."""
    weights = calls * ~np.isnan(cost)
    return float(np.nansum(cost * calls) / weights.sum()) if weights.any() else None


def _episodes_changed(blocks: Blocks, early: Part, late: Part, factors: Factors) -> bool:
    if factors.steps_per_episode is None or min(early.episodes, late.episodes) < LEAST_EPISODES:
        return False
    # Agents often learn fast at first and then level off, so episodes may grow only in the first block.
    chance = SURE * math.sqrt(1.0 / early.episodes + 1.0 / late.episodes)
    least = max(LEAST_LENGTH, math.exp(chance))
    length = np.log(blocks.counts["env_steps"] / np.maximum(blocks.counts["episodes"], 1.0))
    return worth(factors.steps_per_episode, least) and one_way(length) >= LEAST_ONE_WAY


def _alike(phases: tuple[PhaseCost, ...], whole: float) -> bool:
    """Return whether all large phases changed together, which means that the machine changed."""
    step = sum(row.early_s for row in phases)
    large = [row for row in phases if row.early_s >= LARGE_PHASE * step]
    return len(large) > 1 and all(
        row.late_s > 0 and row.early_s > 0 and math.log(row.late_s / row.early_s) / math.log(whole) >= ALIKE
        for row in large
    )
