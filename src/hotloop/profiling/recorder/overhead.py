"""The overhead of spans: measured during the run and kept within a budget.

Time is divided into blocks of 200 ms. In some blocks, fine spans (short, frequent ones) are counted but not timed.
A least-squares fit over the blocks gives the cost of timing a span between real operations: `T_b = sum_s n_bs w_s +
c R_b`, with T_b the length of block b, n_bs the calls of span s in it, w_s the work of such a call, R_b the number of
timed spans and c their cost. The result is averaged with a prior, weighted by the two variances. The prior is the
cost in a tight loop times an assumed factor for cold caches.

Spans whose cost would exceed the budget are timed in only one of 2, 4, ... 64 blocks; counts stay exact.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hotloop.phases import Phase

if TYPE_CHECKING:
    from hotloop.profiling.recorder.feed import NamedSpan

BLOCK_NS = 200_000_000
LONGEST_BLOCK_NS = 2 * BLOCK_NS
SLOWEST_NS = 40_000_000
"""Longest time between two stack samples."""
LONG_NS = 20_000_000
"""Spans longer than this are never switched off: their cost is negligible, and what is inside them matters."""
RARE_PER_S = 20
IN_PLACE = 5.0
"""Assumed cost of a span between torch operations, relative to a tight loop; the spread is below."""
IN_PLACE_SPREAD = 2.0
MAX_THINNING, LEARNT_THINNING = 6, 5
"""Largest levels of thinning: one block in 64 if spans come faster than they can be folded, else one in 32, so that
spans are timed at least every dozen seconds."""
FIRST_HOLD, MAX_HOLD = 25, 6400
"""Number of blocks for which a span that came too fast stays thinned; doubled each time it happens again."""
SPANS_PART = 0.25
"""Share of the budget for spans; the rest is for the sampler, for looking more closely, and for the recorder."""
FILLED = 0.8
"""Spans are timed more often again only up to this part of their share, so that thinning does not oscillate."""
DENSE_BLOCKS = 300
EVERY_DENSE, EVERY_SPARSE = 6, 30
"""Fine spans are switched off in one of this many blocks, to measure their cost: in the first minute, and later."""
COLUMNS = 8
LOOK_NS = 4000.0
"""What it costs to look more closely at a call, between torch operations. Assumed: 2 to 6 us were seen."""
LOOKS_PART = 0.2
"""Share of the budget for that."""
FIRST_LOOKS, LEAST_LOOKS = 5, 64
"""Blocks at the beginning in which all timed calls are looked at, and at least one in so many later."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a span in place, in ns, with its standard error."""

    ns: float
    error_ns: float


@dataclass(frozen=True, slots=True)
class Block:
    """One block: its length, the work done in it, and the number of timed spans."""

    length_ns: int
    done: dict[int, int]
    """Calls by code, of the most frequent codes only."""
    timed: int


class Pace:
    """Time between stack samples, and length of blocks. Both grow if the background thread exceeds its budget."""

    def __init__(self, tick_ns: int, allowed: float) -> None:
        self.tick_ns = self._asked_ns = tick_ns
        self.block_ns = BLOCK_NS
        self._allowed = allowed

    def adapt(self, background: float) -> None:
        """Do less or more, given the share of a core that the thread took. Change blocks first: samples cost little."""
        if background > self._allowed:
            if self.block_ns < LONGEST_BLOCK_NS:
                self.block_ns *= 2
            elif self.tick_ns:
                self.tick_ns = min(self.tick_ns * 2, SLOWEST_NS)
        elif background < self._allowed / 2:
            if self.tick_ns > self._asked_ns:
                self.tick_ns = max(self.tick_ns // 2, self._asked_ns)
            elif self.block_ns > BLOCK_NS:
                self.block_ns //= 2


class Looks:
    """Decides in which blocks hooks look more closely at the calls that they time: in all where such calls are rare."""

    def __init__(self, budget: float) -> None:
        self.on = True
        self._most_per_s = LOOKS_PART * budget * 1e9 / LOOK_NS
        self._every, self._index, self._looked = 1, 0, 0

    def turn(self, looked: int, block_ns: int) -> None:
        """Begin a block, given the number of calls that were looked at so far, and the length of the last block."""
        if self.on:
            rate = (looked - self._looked) * 1e9 / max(block_ns, 1)
            self._every = min(math.ceil(max(rate / self._most_per_s, 1)), LEAST_LOOKS)
        self._looked = looked
        self._index += 1
        self.on = self._index < FIRST_LOOKS or self._index % self._every == 0


class Governor:
    """Decides, block by block, which spans are timed."""

    def __init__(self, budget: float, tight_ns: float) -> None:
        self.budget = budget
        self.tight_ns = tight_ns
        self.cost = Cost(IN_PLACE * self.tight_ns, IN_PLACE_SPREAD * self.tight_ns)
        self.blocks: deque[Block] = deque(maxlen=500)
        self.index = self._origin = 0
        self.dark = False
        self.thinning: dict[int, int] = {}
        self._fine: set[int] = set()
        self.off: set[int] = set()
        """Codes of the spans that are not timed in this block."""
        self._evaluating: set[int] = set()
        self._around: set[int] = set()
        """Codes of evaluations, and of the spans that they occurred in."""
        self._held: dict[int, int] = {}
        self._hold = FIRST_HOLD
        self._counted = np.zeros(0, np.int64)

    def costs(self) -> dict[str, float]:
        """Return the cost of a span, with the names used in `state.json`."""
        return {"span_ns": self.cost.ns, "span_error_ns": self.cost.error_ns, "tight_ns": self.tight_ns}

    def use_tight(self, tight_ns: float) -> None:
        """Use the cost of a span in a tight loop, as the process measured it."""
        self.tight_ns = tight_ns
        self.cost = estimate(list(self.blocks), tight_ns)

    def counted(self, so_far: Sequence[int]) -> Counter[int]:
        """Return the calls that were counted but not timed since the last call of this method, by code."""
        now = np.array(so_far, np.int64)
        before = np.pad(self._counted, (0, max(len(now) - len(self._counted), 0)))[: len(now)]
        fresh, self._counted = now - before, now
        return Counter({int(code): int(fresh[code]) for code in np.flatnonzero(fresh)})

    def close_block(self, length_ns: int, timed: Counter[int], counted: Counter[int]) -> None:
        """Store the work done in a block."""
        done = dict((timed + counted).most_common(2 * COLUMNS))
        self.blocks.append(Block(length_ns, done, sum(timed.values())))

    def begin(self) -> None:
        """Restart the schedule of blocks: in the next block all spans are timed, even thinned ones.

        When a recording begins late (`--after`), spans are already thinned, and a short one might never time them.
        """
        self._origin = self.index + 1

    def open_block(self, every: Sequence[NamedSpan]) -> bool:
        """Choose which spans are timed in the next block; return whether that changed."""
        self.index += 1
        dense = len(self.blocks) < DENSE_BLOCKS
        since = self.index - self._origin
        # Thinned spans are timed in blocks with even numbers, so calibrate in odd ones.
        calibrate = since % (EVERY_DENSE if dense else EVERY_SPARSE) == 3
        off: set[int] = set()
        # Always time evaluations and the spans around them, because steps inside an evaluation are not training.
        self._evaluating = {each.code for each in every if each.phase is Phase.EVALUATE}
        for code in self._fine - self._evaluating - self._around:
            thin = self.thinning.get(code, 0)
            if calibrate or (thin and since % (1 << thin)):
                off.add(code)
        changed, self.off = off != self.off, off
        self.dark = bool(off)
        return changed

    def shed(self, began: Counter[int]) -> None:
        """Immediately apply maximal thinning to spans that come faster than they can be folded."""
        heavy = {code for code, n in began.items() if 4 * n > began.most_common(1)[0][1]}
        self._fine |= heavy
        self.thinning |= dict.fromkeys(heavy, MAX_THINNING)
        self._hold = min(2 * self._hold, MAX_HOLD)
        self._held |= dict.fromkeys(heavy, self.index + self._hold)

    def learn(self, rates: Counter[int], mean_ns: dict[int, float], calls: set[tuple[int, int]]) -> None:
        """Estimate the cost of a span, and thin spans that are too frequent for the budget. Called once a second.

        Args:
            rates: Calls per second by code.
            mean_ns: Mean duration by code.
            calls: Pairs of codes (outer, inner) such that inner occurred directly inside outer.
        """
        fine = {code for code, rate in rates.items() if rate >= RARE_PER_S and mean_ns.get(code, 0.0) < LONG_NS}
        self._fine = set(_spread(dict.fromkeys(fine, 1), calls))
        upwards = {(inner, outer) for outer, inner in calls}
        self._around |= set(_spread(dict.fromkeys(self._evaluating, 1), upwards))
        self.cost = estimate(list(self.blocks), self.tight_ns)
        share = {code: rates[code] * self.cost.ns / 1e9 / (1 << self.thinning.get(code, 0)) for code in self._fine}
        self._fit_into_budget(share)
        self.thinning = _spread(self.thinning, calls)

    def _fit_into_budget(self, share: dict[int, float]) -> None:
        """Thin the costliest spans by one level if the budget is exceeded; else time the cheapest more."""
        total, allowed = sum(share.values()), self.budget * SPANS_PART
        exceeded = total > allowed
        for code in sorted(share, key=share.__getitem__, reverse=exceeded):
            thin = self.thinning.get(code, 0)
            if exceeded and total > allowed and thin < LEARNT_THINNING:
                self.thinning[code] = thin + 1
                total -= share[code] / 2
            elif not exceeded and thin and self._held.get(code, 0) <= self.index:
                if total + share[code] > FILLED * allowed:
                    break
                self.thinning[code] = thin - 1
                total += share[code]


def _spread(levels: dict[int, int], calls: set[tuple[int, int]]) -> dict[int, int]:
    """Raise the level of each code to at least that of its callers.

    A span that is timed while its caller is not would appear in the wrong place of the tree.
    """
    levels = dict(levels)
    changed = True
    while changed:
        changed = False
        for outer, inner in calls:
            if levels.get(outer, 0) > levels.get(inner, 0):
                levels[inner] = levels[outer]
                changed = True
    return levels


def estimate(blocks: list[Block], tight_ns: float) -> Cost:
    """Estimate the cost of a span between real operations, from blocks with and without timed spans.

    This is a least-squares fit of the block's length to the counts of the most frequent spans and the number of timed
    spans. It is repeated without the blocks that fit badly, and combined with the prior from the tight loop.
    """
    prior = Cost(IN_PLACE * tight_ns, IN_PLACE_SPREAD * tight_ns)
    if len(blocks) < 20:
        return prior
    totals: Counter[int] = Counter()
    for block in blocks:
        totals.update(block.done)
    top = [code for code, _ in totals.most_common(COLUMNS)]
    work = np.array([[*(block.done.get(code, 0) for code in top), block.timed] for block in blocks], np.float64)
    length = np.array([block.length_ns for block in blocks], np.float64)
    used = work[:, :-1].sum(axis=1) > 0
    measured = _least_squares(work[used], length[used])
    if measured is None:
        return prior
    weight, prior_weight = 1 / measured.error_ns**2, 1 / prior.error_ns**2
    mean = (measured.ns * weight + prior.ns * prior_weight) / (weight + prior_weight)
    return Cost(float(np.clip(mean, tight_ns, 10 * tight_ns)), (weight + prior_weight) ** -0.5)


def _least_squares(work: np.ndarray, length: np.ndarray) -> Cost | None:
    """Fit twice, the second time without the outliers of the first fit."""
    fitted = _fit(work, length)
    if fitted is None:
        return None
    residual = length - work @ fitted[0]
    middle = _median(residual)
    kept = np.abs(residual - middle) <= 3 * max(1.4826 * _median(np.abs(residual - middle)), 1.0)
    fitted = _fit(work[kept], length[kept])
    if fitted is None:
        return None
    weights, inverse = fitted
    spread = float(np.std(length[kept] - work[kept] @ weights))
    error = spread * float(np.sqrt(max(inverse[-1, -1], 0.0)))
    return Cost(float(weights[-1]), error) if error > 0 and np.isfinite(error) else None


def _median(values: np.ndarray) -> float:
    """Return the median. `np.median` would import numpy.ma into the training process, which takes 30 ms."""
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _fit(work: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the weights and the inverse of the normal matrix; None if there are too few blocks of either kind."""
    if len(work) < work.shape[1] + 10:
        return None
    dark = work[:, -1] < 0.5 * _median(work[:, -1])
    if dark.sum() < 3:
        return None
    squares = work.T @ work
    # Codes that always occur together make the matrix singular; a little ridge regularisation splits their weight.
    inverse = np.linalg.inv(squares + 1e-9 * np.trace(squares) * np.eye(len(squares)))
    return inverse @ (work.T @ length), inverse
