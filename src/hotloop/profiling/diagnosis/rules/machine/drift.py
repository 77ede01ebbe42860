"""A place in the loop costs more and more a call, because it goes through something that only grows.

**Cause.** Each step goes through something that only grows: a history that is summed again, a list that is searched,
a body that is scanned. A step pays for all steps before it, so steps/s fall all through the run, and time grows with
the square of the steps. A log of dictionaries summed twice took 1.4 ms a step in the first third of a run of 9,000
steps, and 2.2 in the last.

**Seen by.** The loop is cut into six stretches. A place whose calls take at least 1.5 times as long in the last third
as in the first, *against the rest of the loop*, and rises nearly all the way (13 of 15 pairs of stretches in order).
The rest shows what the machine did: if everything slows down alike, it is other programs or heat. Times are those of
single calls, so more updates a step, or more resets, are no drift; nor is the time before the first updates compared,
for that learning begins is a step.

The report also splits the whole: time = episodes × steps an episode × cost of a step, of which only the last is a
fault. Episodes that grow longer are what learning looks like: 5,000 episodes take far more than five times as long as
1,024.

**Cure.**
```python
self.total += reward  # a running sum, not sum(self.history)
self.low, self.high = min(self.low, x), max(self.high, x)
self.recent = deque(maxlen=100)  # not a list that is never cleared
self.taken = set(body)  # cell in self.taken, not a scan of the body
self.history.clear()  # in reset(), if it belongs to the episode
```

An optimiser that gets slower is another matter: it does the same work in every step, but with subnormal numbers.
Adam's moments of weights that get no gradient (dead units, actions never taken) decay towards zero, and below 1e-38 a
processor needs many times longer. In our own clean loop on pixels `Adam.step` went from 0.38 to 1.01 ms within ten
seconds, and this rule found it:
```python
torch.set_flush_denormal(True)  # once, before training
```

**Residual.** What a call took when the loop began: a parabola through the six stretches, at step 0, not more than in
the first stretch. The gain is for the recorded time; a longer run gains more. Recorded with `--after`, the begin is
that of the recording, and the gain is understated.

**Not meant.** Runs of fewer than seven windows; spans timed in fewer than five of the six stretches; a replay that is
slower to gather from as it fills (caches), which grows less. Rules that name the cause (`growing_sample`,
`growing_array`) come first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotloop.phases import Phase
from hotloop.profiling.diagnosis.evidence import duration, hottest, indices, percent, times
from hotloop.profiling.diagnosis.finding import Cause, Residual, clamped
from hotloop.profiling.diagnosis.time_slices import Loop
from hotloop.profiling.trace.drift import BLOCKS, Blocks, Floats, compare, cut, node_calls, node_costs, trend

LEAST_GROWTH = 1.4
"""From the first third of the loop to its last, against the rest of the loop."""
LEAST_ALONE = 1.2
"""And by itself."""
LEAST_TREND = 0.7
"""Kendall's tau: of six blocks, 13 of 15 pairs are in order."""
LEAST_SHARE = 0.02
LEAST_BLOCKS = 5
LEAST_GAUGE = 0.1
"""Part of the loop that the rest must be, to be trusted to tell how fast the machine is."""
LEAST_COST = 1e-6
"""Of the mean: a block in which a call took no time at all would outweigh all others."""
THIRD = BLOCKS // 3
ADVICE = """\
Do not go through all that was ever kept in each step. Keep what is asked of it up to date instead, or bound it:
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
    """A node of the call tree over the blocks in which calls of it were timed."""

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


def find(loop: Loop) -> list[Cause]:
    """Find places whose cost a call grows over the run."""
    blocks = cut(loop.trace)
    if blocks is None or not loop.thread.stretches:
        return []
    nodes = loop.thread.by_id
    costs = {node: cost for node, cost in node_costs(loop.trace).items() if node in nodes}
    calls = node_calls(loop.trace)
    large = [node for node in costs if nodes[node].self_ns >= LEAST_SHARE * loop.wall_ns]
    places = [place for node in large if (place := _place(node, costs, calls))]
    found = [place for place in places if place.grows]
    return [_cause(loop, blocks, found, calls)] if found else []


def growth(values: Floats) -> float:
    """Return the mean of the last third of values over that of the first."""
    third = max(len(values) // 3, 1)
    early, late = float(values[:third].mean()), float(values[-third:].mean())
    return late / early if early > 0 else 1.0


def _place(node: int, costs: dict[int, Floats], calls: dict[int, Floats]) -> Place | None:
    """Look at a node in the blocks in which it was timed; the rest is what was timed in all of these."""
    valid = np.flatnonzero(~np.isnan(costs[node]))
    others = [each for each in costs if each != node and not np.isnan(costs[each][valid]).any()]
    rest = sum((costs[each][valid] * calls[each].sum() for each in others), np.zeros(len(valid)))
    if len(valid) < LEAST_BLOCKS or not rest.all():
        return None
    own = costs[node][valid] * calls[node].sum()
    # What is a small part of the loop, such as microseconds of acting, is a poor gauge of the machine.
    trust = min(1.0, float(rest.mean() / (rest + own).mean()) / LEAST_GAUGE)
    return Place(node, valid, costs[node][valid], (rest / rest.mean()) ** trust)


def _cause(loop: Loop, blocks: Blocks, found: list[Place], calls: dict[int, Floats]) -> Cause:
    nodes = loop.thread.by_id
    claimed = loop.where(lambda atom: atom.node.id in {place.node for place in found})
    early, late = blocks.part(0, THIRD - 1), blocks.part(BLOCKS - THIRD, BLOCKS - 1)
    factors = compare(early, late)
    split = f"the cost of a step is {factors.cost_per_step:.2f} times what it was"
    if factors.steps_per_episode is not None:
        split += f", and episodes are {factors.steps_per_episode:.2f} times as long"
    first = max(found, key=lambda place: nodes[place.node].self_ns)
    began, subnormal = blocks.learning_began_s, nodes[first.node].phase is Phase.OPTIMISE
    why = ", by subnormal numbers" if subnormal else ""
    return Cause(
        rule="drift",
        title=f"{nodes[first.node].name} gets slower and slower{why}: {times(growth(first.cost))} times in this run.",
        atoms=indices(claimed),
        residual=_residual(blocks, found, calls),
        evidence=(
            f"a call takes {duration(1e9 * float(first.cost[:THIRD].mean()))} in the first third of the run and "
            f"{duration(1e9 * float(first.cost[-THIRD:].mean()))} in the last; the rest of the loop "
            f"{growth(first.machine):.2f} times as long",
            f"{1 / early.cost_per_step_s:,.0f} steps/s, then {1 / late.cost_per_step_s:,.0f}: {split}",
            *([f"updates began after {began:.0f} s; only what came later is compared"] if began else []),
            f"the gain is for the recorded time ({percent(loop.share(claimed))} of it) and grows with the run",
            hottest(loop, claimed),
        ),
        advice=SUBNORMAL_ADVICE if subnormal else ADVICE,
        general=True,
    )


def _residual(blocks: Blocks, found: list[Place], calls: dict[int, Floats]) -> Residual:
    """Expect that a call goes on taking what it took at the begin of the loop: the part that does not grow.

    A curve through the blocks says what that was, once the machine's ups and downs are taken out, and how surely: its
    upper end is taken, for to expect too little there is to promise a gain without end. It is not more than in the
    first block. All calls of each block count, for those that were timed may lie early in the run, where they were
    cheap.
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
    """Fit a line, or a parabola where growth speeds up; return it with the standard error of where it begins.

    A parabola that bends down fits growth that ends, too, but before the first block, where nothing was seen, it falls
    steeply: a call would have cost next to nothing there.
    """
    weight = 1 / np.maximum(cost, LEAST_COST * cost.mean())
    fits = [np.polyfit(at, cost, degree, w=weight, cov=True) for degree in (1, 2)]
    curve, covariance = fits[1] if fits[1][0][0] > 0 else fits[0]
    return curve, float(np.sqrt(covariance[-1, -1]))
