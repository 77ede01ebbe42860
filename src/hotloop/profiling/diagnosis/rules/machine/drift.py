"""A call in the loop takes longer and longer, because it goes through something that only grows.

Examples are a history that is summed again in each step, and a list that is searched. Each step pays for all steps
before it, so steps/s fall throughout the run. A log of dictionaries that was summed twice took 1.4 ms per step in the
first third of a run of 9,000 steps, and 2.2 ms in the last.

**Seen by.** The loop is cut into six stretches. A node of the call tree is reported if its calls take at least 1.4
times as long in the last third as in the first, *relative to the rest of the loop*, and rise almost monotonically (13
of 15 pairs of stretches in order). If everything slows down alike, the cause is the machine: other programs, or heat.
Times are per call, so more updates or resets per step are not drift. The time before the first update is not compared.

The report also splits the total: time = episodes × steps per episode × cost per step. Only growth of the last factor is
a fault. Longer episodes are a result of learning: 5,000 episodes take far more than five times as long as 1,024.

An optimiser that gets slower does the same work in every step, but on subnormal numbers. Adam's moments of weights
without gradients (dead units, actions never taken) decay towards zero, and below 1e-38 a processor is many times
slower. In a clean loop on pixels, `Adam.step` went from 0.38 to 1.01 ms within ten seconds.

**Residual.** The time of a call at the start of the loop: a parabola through the six stretches at step 0, at most the
time in the first stretch. The gain is for the recorded time; a longer run gains more. With `--after`, the start is that
of the recording, and the gain is underestimated.

**Not covered.** Runs of fewer than seven windows; spans timed in fewer than five of the six stretches; replay buffers
that become slower as they fill (caches), which grow less. More specific rules (`growing_sample`, `growing_array`) take
precedence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.claims import indices
from hotloop.profiling.diagnosis.evidence import duration, hottest, percent, times
from hotloop.profiling.diagnosis.finding import Cause, Causes, Residual, clamped
from hotloop.profiling.diagnosis.time_slices import Loop
from hotloop.profiling.trace.drift import BLOCKS, Blocks, Floats, compare, cut, node_calls, node_costs, trend

LEAST_GROWTH = 1.4
"""From the first third of the loop to its last, against the rest of the loop."""
LEAST_ALONE = 1.2
"""The same, not compared with the rest of the loop."""
LEAST_TREND = 0.7
"""Kendall's tau: of six blocks, 13 of 15 pairs are in order."""
LEAST_SHARE = 0.02
LEAST_BLOCKS = 5
LEAST_GAUGE = 0.1
"""The rest must be at least this part of the loop to measure the speed of the machine."""
LEAST_COST = 1e-6
"""Of the mean: a block in which a call took no time at all would outweigh all others."""
THIRD = BLOCKS // 3
ADVICE = """\
Do not go through the whole history in each step. Update the result incrementally, or bound the history:
    self.total += reward; self.n += 1               # a running sum, not sum(self.history)
    self.recent = deque(maxlen=100)                 # not a list that is never cleared
    self.taken = set(); cell in self.taken          # not a scan of a list
    self.history.clear()                            # in reset(), if it belongs to the episode"""
SUBNORMAL_ADVICE = """\
An optimiser does the same work in every step. One that gets slower computes with subnormal numbers: the moments of
weights that get no gradient decay towards zero, and below 1e-38 a processor needs many times longer. Make them zero:
    torch.set_flush_denormal(True)                  # once, before training"""


@dataclass(frozen=True)
class Place:
    """A node of the call tree, over the blocks in which its calls were timed."""

    node: int
    blocks: NDArray[np.int64]
    cost: Floats
    """Seconds a call takes, in each of these blocks."""
    machine: Floats
    """How slow the rest of the loop was in them, 1 on average."""

    @property
    def grows(self) -> bool:
        """Whether it grows, alone and against the rest, which a slower machine would slow down alike."""
        against = self.cost / self.machine
        return growth(against) >= LEAST_GROWTH and growth(self.cost) >= LEAST_ALONE and trend(against) >= LEAST_TREND


def find(loop: Loop) -> Causes:
    """Find places whose cost per call grows during the run."""
    blocks = cut(loop.trace)
    if blocks is None or not loop.thread.stretches:
        return []
    nodes = loop.thread.by_id
    costs = {node: cost for node, cost in node_costs(loop.trace).items() if node in nodes}
    calls = node_calls(loop.trace)
    large = [node for node in costs if nodes[node].self_ns >= LEAST_SHARE * loop.wall_ns]
    found = [place for node in large if (place := _place(node, costs, calls)) and place.grows]
    return [_cause(loop, blocks, found, calls)] if found else []


def growth(values: Floats) -> float:
    """Return the mean of the last third of values over that of the first."""
    third = max(len(values) // 3, 1)
    early, late = float(values[:third].mean()), float(values[-third:].mean())
    return late / early if early > 0 else 1.0


def _place(node: int, costs: dict[int, Floats], calls: dict[int, Floats]) -> Place | None:
    """Return a node in the blocks in which it was timed, compared with the nodes that were timed in all of these."""
    valid = np.flatnonzero(~np.isnan(costs[node]))
    others = [each for each in costs if each != node and not np.isnan(costs[each][valid]).any()]
    rest = sum((costs[each][valid] * calls[each].sum() for each in others), np.zeros(len(valid)))
    if len(valid) < LEAST_BLOCKS or not rest.all():
        return None
    own = costs[node][valid] * calls[node].sum()
    # A small part of the loop, such as microseconds of acting, is a poor measure of the machine's speed.
    trust = min(1.0, float(rest.mean() / (rest + own).mean()) / LEAST_GAUGE)
    return Place(node, valid, costs[node][valid], (rest / rest.mean()) ** trust)


def _cause(loop: Loop, blocks: Blocks, found: list[Place], calls: dict[int, Floats]) -> Cause:
    nodes = loop.thread.by_id
    claimed = loop.of_nodes(nodes[place.node] for place in found)
    early, late = blocks.part(0, THIRD - 1), blocks.part(BLOCKS - THIRD, BLOCKS - 1)
    factors = compare(early, late)
    split = f"the cost of a step is {factors.cost_per_step:.2f} times what it was"
    if factors.steps_per_episode is not None:
        split += f", and episodes are {factors.steps_per_episode:.2f} times as long"
    first = max(found, key=lambda place: nodes[place.node].self_ns)
    began, subnormal = blocks.learning_began_s, nodes[first.node].phase is Phase.OPTIMISE
    why = ", by subnormal numbers" if subnormal else ""
    return Cause(
        title=f"{nodes[first.node].name} gets slower and slower{why}: {times(growth(first.cost))} times in this run.",
        atoms=indices(claimed),
        residual=_residual(blocks, found, calls),
        evidence=(
            f"a call takes {duration(1e9 * float(first.cost[:THIRD].mean()))} in the first third of the run and "
            f"{duration(1e9 * float(first.cost[-THIRD:].mean()))} in the last; the rest of the loop "
            f"{growth(first.machine):.2f} times as long",
            f"{1 / early.cost_per_step_s:,.0f} steps/s, then {1 / late.cost_per_step_s:,.0f}: {split}",
            f"updates began after {began:.0f} s; only what came later is compared" if began else "",
            f"the gain is for the recorded time ({percent(loop.share(claimed))} of it) and grows with the run",
            hottest(loop, claimed),
        ),
        advice=SUBNORMAL_ADVICE if subnormal else ADVICE,
        general=True,
    )


def _residual(blocks: Blocks, found: list[Place], calls: dict[int, Floats]) -> Residual:
    """Assume that a fixed call always takes as long as at the start of the loop.

    That time comes from a curve through the blocks, after removing the machine's variations, plus its standard error,
    because a value near zero would predict an unlimited gain. It is at most the time in the first block. All calls of a
    block count, because timed calls may be early in the run, where they are cheap.
    """
    spent = saved = least = 0.0
    for place in found:
        against = place.cost / place.machine
        at = blocks.steps_before / blocks.steps_before[-1]
        curve, error = _growth_curve(at[place.blocks], against)
        start, early = min(max(float(curve[-1]), 0.0) + error, float(against[0])), float(against[:THIRD].mean())
        machine, cost = np.ones(BLOCKS), np.maximum(np.polyval(curve, at), start)
        machine[place.blocks], cost[place.blocks] = place.machine, place.cost
        spent += float((cost * calls[place.node]).sum())
        saved += float(((cost - machine * start) * calls[place.node]).sum())
        least += float(((cost - machine * early) * calls[place.node]).sum())
    left = 1.0 - saved / spent
    return clamped(left, left / 2, 1.0 - least / spent)


def _growth_curve(at: Floats, cost: Floats) -> tuple[Floats, float]:
    """Fit a line, or a parabola where growth speeds up; return it with the standard error of its start.

    A parabola that bends down is not used: before the first block it falls steeply, as if calls had cost nothing there.
    """
    weight = 1 / np.maximum(cost, LEAST_COST * cost.mean())
    fits = [np.polyfit(at, cost, degree, w=weight, cov=True) for degree in (1, 2)]
    curve, covariance = fits[1] if fits[1][0][0] > 0 else fits[0]
    return curve, float(np.sqrt(covariance[-1, -1]))
