"""What recording costs, measured in the run itself, and kept within a budget.

Time is cut into blocks of 200 ms. In some of them the fine spans are switched off (they are still counted).
How much work a block got done, by those counts, against how many spans it timed, gives the cost of a span in
place, by least squares: `T_b = sum_s n_bs w_s + c R_b`. Until that is precise, a tight loop's cost times the
factor by which caches make it dearer between real operations stands in, weighed by the two variances.

Spans whose cost would exceed the budget are timed in only one of 2, 4, ... 64 blocks; counts stay exact.
"""

from __future__ import annotations

import functools
from collections import Counter, deque
from dataclasses import dataclass

import numpy as np

from hotloop.clock import now_ns
from hotloop.phases import Phase
from hotloop.spans import hot_path, registry
from hotloop.spans.registry import Span

BLOCK_NS = 200_000_000
LONGEST_BLOCK_NS = 2 * BLOCK_NS
SLOWEST_NS = 40_000_000
"""The stacks are looked at no less often than this."""
LONG_NS = 20_000_000
"""Spans longer than this are never switched off: they cost nothing, and their inside is what is measured."""
RARE_PER_S = 20
IN_PLACE = 3.0
"""A span between torch operations costs about so many times that of a tight loop (assumed, with the spread below)."""
IN_PLACE_SPREAD = 1.5
MAX_THINNING, LEARNT_THINNING = 6, 5
"""One in 64 blocks where spans come faster than they can be folded; else one in 32, so that no stretch of the run of
more than a dozen seconds goes by untimed."""
FIRST_HOLD, MAX_HOLD = 25, 6400
"""Blocks for which a span that came too fast stays thinned; doubled each time that it happens again."""
SPANS_PART = 0.5
"""Part of the budget that spans may take; the rest is the background thread's."""
FILLED = 0.8
"""Spans are timed more often again up to this part of what they may take, so that they do not go to and fro."""
DENSE_BLOCKS = 300
EVERY_DENSE, EVERY_SPARSE = 6, 30
"""One block in so many has its fine spans switched off: in the first minute, and later."""
COLUMNS = 8


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a span in place, in ns, with its standard error."""

    ns: float
    error_ns: float


@dataclass(frozen=True, slots=True)
class Block:
    """One block: how long, what was done, how many spans were timed."""

    length_ns: int
    done: dict[int, int]
    """Calls by code, of the most frequent codes only."""
    timed: int


@functools.cache
def tight_loop_ns(rounds: int = 500) -> float:
    """Return what a span costs in a tight loop, in ns: the least that it can cost.

    Call it while nothing records: the logs that it fills are dropped. Measured once, so that a fork costs little.
    """

    def nothing() -> None:
        return None

    probe = _Probe(1)
    hot_path.listen()
    try:
        span_ns = min(_loop(lambda: _enter(probe), rounds) - _loop(nothing, rounds) for _ in range(5))
    finally:
        hot_path.listen()
    return max(span_ns, 50.0)


class _Probe(hot_path.Core):
    __slots__ = ()
    __enter__ = hot_path.Core.start
    __exit__ = hot_path.Core.finish


def _enter(probe: _Probe) -> None:
    with probe:
        pass


def _loop(fn: object, rounds: int) -> float:
    begin = now_ns()
    for _ in range(rounds):
        fn()  # type: ignore[operator]
    return (now_ns() - begin) / rounds


class Pace:
    """How long blocks and looks are apart: longer when the background thread takes more than its part of the budget."""

    def __init__(self, tick_ns: int, allowed: float) -> None:
        self.tick_ns = self._asked_ns = tick_ns
        self.block_ns = BLOCK_NS
        self._allowed = allowed

    def adapt(self, background: float) -> None:
        """Do less or more, given the share of a core that the thread took. Blocks first: a look costs little."""
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
        self._off: set[int] = set()
        self._evaluating: set[int] = set()
        self._around: set[int] = set()
        """Codes of evaluations, and of what they were seen to be called from."""
        self._held: dict[int, int] = {}
        self._hold = FIRST_HOLD
        self._tallied: dict[int, int] = {}

    def costs(self) -> dict[str, float]:
        """What a span costs, as it is written down."""
        return {"span_ns": self.cost.ns, "span_error_ns": self.cost.error_ns, "tight_ns": self.tight_ns}

    def counted(self, every: list[Span]) -> Counter[int]:
        """Return the calls counted but not timed since the last time, by code."""
        fresh: Counter[int] = Counter()
        for each in every:
            now = each.tallied()
            fresh[each.code] = now - self._tallied.get(each.code, 0)
            self._tallied[each.code] = now
        return +fresh

    def close_block(self, length_ns: int, timed: Counter[int], counted: Counter[int]) -> None:
        """Keep what a block got done."""
        done = dict((timed + counted).most_common(2 * COLUMNS))
        self.blocks.append(Block(length_ns, done, sum(timed.values())))

    def begin(self) -> None:
        """Count blocks from the next one on: in that one all spans are timed, however far they are thinned.

        Where recording begins late, spans are thinned by then, and a short recording might never see them timed.
        """
        self._origin = self.index + 1

    def open_block(self, every: list[Span]) -> bool:
        """Choose which spans are timed in the next block; say whether that changed."""
        self.index += 1
        dense = len(self.blocks) < DENSE_BLOCKS
        since = self.index - self._origin
        # Never a block in which what is thinned is timed: those numbers are even.
        calibrate = since % (EVERY_DENSE if dense else EVERY_SPARSE) == 3
        off: set[int] = set()
        # Steps inside an evaluation are no training: it must be seen, and so must what it is called from.
        self._evaluating = {each.code for each in every if each.phase is Phase.EVALUATE}
        for code in self._fine - self._evaluating - self._around:
            thin = self.thinning.get(code, 0)
            if calibrate or (thin and since % (1 << thin)):
                off.add(code)
        changed, self._off = off != self._off, off
        if not changed:
            return False
        self.dark = bool(off)
        for each in every:
            if each.code in off:
                registry.make_counted(each)
            else:
                registry.make_live(each)
        return True

    def shed(self, began: Counter[int]) -> None:
        """Thin at once, and as far as can be, what comes faster than it can be folded."""
        heavy = {code for code, n in began.items() if 4 * n > began.most_common(1)[0][1]}
        self._fine |= heavy
        self.thinning |= dict.fromkeys(heavy, MAX_THINNING)
        self._hold = min(2 * self._hold, MAX_HOLD)
        self._held |= dict.fromkeys(heavy, self.index + self._hold)

    def learn(self, rates: Counter[int], mean_ns: dict[int, float], calls: set[tuple[int, int]]) -> None:
        """Once a second: estimate the cost, and thin what is too fine for the budget.

        Args:
            rates: Calls a second by code.
            mean_ns: Mean duration by code.
            calls: Which code was seen directly inside which: (outer, inner).
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
        """Thin the dearest by one level if they exceed the budget; else time the cheapest more, if there is room."""
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
    """Give each code at least the level of those it is called from.

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
    """Estimate what a span costs in place, from blocks with and without timed spans.

    Least squares of the block's length on the counts of the most frequent spans and on the number of timed
    spans, with blocks that fit badly left out once, combined with the prior from the tight loop.
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
    """Fit twice: the second time without the blocks that the first fit shows to be disturbed."""
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
    """As `np.median` does, which would import numpy.ma into the training process: 30 ms."""
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _fit(work: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the weights and the inverse of the squares; None where there are too few blocks of either kind."""
    if len(work) < work.shape[1] + 10:
        return None
    dark = work[:, -1] < 0.5 * _median(work[:, -1])
    if dark.sum() < 3:
        return None
    squares = work.T @ work
    # Codes that always go together make the matrix singular; a trace of ridge shares their weight.
    inverse = np.linalg.inv(squares + 1e-9 * np.trace(squares) * np.eye(len(squares)))
    return inverse @ (work.T @ length), inverse
