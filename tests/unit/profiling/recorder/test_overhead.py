"""What a span costs is found from blocks with and without timed spans, and is kept within the budget."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from hotloop.phases import Phase
from hotloop.profiling.recorder.overhead import (
    EVERY_DENSE,
    IN_PLACE,
    LEARNT_THINNING,
    MAX_THINNING,
    SPANS_PART,
    Block,
    Governor,
    estimate,
)
from hotloop.profiling.recorder.span_cost import tight_loop_ns
from hotloop.spans import hot_path, registry
from hotloop.spans.registry import Span


def blocks(cost_ns: float, n: int, seed: int, noise: float = 0.002) -> list[Block]:
    """Blocks in which calls of three kinds take their time, plus a cost for each that is timed."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        done = Counter({1: int(rng.poisson(4000)), 2: int(rng.poisson(900)), 3: int(rng.poisson(100))})
        timed = 0 if i % EVERY_DENSE == 3 else sum(done.values())
        work = done[1] * 30_000 + done[2] * 60_000 + done[3] * 200_000
        found.append(Block(round(work * (1 + rng.normal(0, noise)) + cost_ns * timed), done, timed))
    return found


@pytest.mark.parametrize("cost_ns", [600.0, 1500.0, 3000.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_known_cost_is_recovered_within_its_interval(cost_ns, seed):
    found = estimate(blocks(cost_ns, 300, seed), tight_ns=500.0)
    assert abs(found.ns - cost_ns) < 3.5 * found.error_ns
    assert 0 < found.error_ns < 200


def test_outliers_do_not_spoil_the_estimate():
    disturbed = blocks(1200.0, 300, 1)
    for i in range(0, 300, 37):
        disturbed[i] = Block(disturbed[i].length_ns * 3, disturbed[i].done, disturbed[i].timed)
    found = estimate(disturbed, tight_ns=500.0)
    assert abs(found.ns - 1200) < 4 * found.error_ns


def test_more_blocks_make_it_more_precise():
    few, many = (estimate(blocks(1000.0, n, 2), tight_ns=500.0) for n in (60, 900))
    assert many.error_ns < few.error_ns


def test_without_contrast_the_tight_loop_stands_in():
    prior = estimate([], tight_ns=400.0)
    assert prior.ns == IN_PLACE * 400.0
    always = [Block(b.length_ns, b.done, sum(b.done.values())) for b in blocks(900.0, 200, 0)]
    assert estimate(always, tight_ns=400.0) == prior
    assert estimate(blocks(900.0, 19, 0), tight_ns=400.0) == prior
    idle = [Block(200_000_000, Counter(), 0)] * 100
    assert estimate(idle, tight_ns=400.0) == prior


def test_the_estimate_stays_within_what_is_possible():
    low, high = (estimate(blocks(cost, 300, 3, 1e-4), tight_ns=500.0) for cost in (0.0, 50_000.0))
    assert low.ns == 500.0
    assert high.ns == 5000.0


def test_the_tight_loop_is_measured():
    span_ns = tight_loop_ns(100)
    assert span_ns >= 50


@pytest.fixture
def listening() -> Iterator[list[hot_path.Log]]:
    yield registry.listen()
    registry.hush()


def governor(cost_ns: float, budget: float = 0.01) -> Governor:
    return Governor(budget, cost_ns / IN_PLACE)


def turn(made: Governor) -> bool:
    """Open the next block, and switch spans as the recorded process does."""
    changed = made.open_block(registry.known_spans())
    registry.use_counted(bytes(code in made.off for code in range(len(registry.known_spans()) + 1)))
    return changed


def tallied() -> list[int]:
    """Calls that were counted without being timed, by code."""
    return [0, *(each.tallied() for each in registry.known_spans())]


def load_of(made: Governor, rates: Counter[int]) -> float:
    """Share of the time that timed spans take with the present thinning."""
    return sum(n * made.cost.ns / 1e9 / (1 << made.thinning.get(code, 0)) for code, n in rates.items())


def test_spans_that_are_too_fine_are_thinned_to_the_budget_and_come_back(listening):
    made = governor(1900.0)
    rates = Counter({1: 20_000, 2: 20_000, 3: 30})
    mean_ns = {1: 1e4, 2: 2e4, 3: 1e6}
    for _ in range(20):
        made.learn(rates, mean_ns, set())
    assert load_of(made, rates) <= 0.01 * SPANS_PART
    assert max(made.thinning.values()) <= MAX_THINNING
    assert made.thinning.get(3, 0) <= min(made.thinning[1], made.thinning[2])
    quiet = Counter({1: 200, 2: 200, 3: 30})
    for _ in range(20):
        made.learn(quiet, mean_ns, set())
    assert not any(made.thinning.values())
    assert load_of(made, quiet) <= 0.01 * SPANS_PART


def test_spans_thinned_in_a_fast_start_are_timed_again_beside_others_that_take_their_part(listening):
    made = Governor(budget=0.01, tight_ns=300.0)
    for _ in range(8):
        made.learn(Counter({1: 60_000, 2: 60_000}), {1: 1e4, 2: 1e4}, set())
    assert made.thinning == {1: LEARNT_THINNING, 2: LEARNT_THINNING}
    # The loop slows down: those now take next to nothing, and span 3 alone takes more than half of the budget.
    later = Counter({1: 100, 2: 100, 3: 1000})
    assert 0.5 < load_of(made, later) / (made.budget * SPANS_PART) < 0.8
    for _ in range(LEARNT_THINNING):
        made.learn(later, {1: 1e6, 2: 1e6, 3: 1e5}, set())
    assert not any(made.thinning.values())


def test_thinning_has_an_end(listening):
    made = governor(2000.0)
    for _ in range(40):
        made.learn(Counter({1: 3_000_000}), {1: 100.0}, set())
    assert made.thinning == {1: LEARNT_THINNING}


def test_what_is_thinned_takes_what_it_calls_with_it(listening):
    made = governor(2000.0)
    for _ in range(10):
        made.learn(Counter({1: 20_000, 2: 25, 3: 25}), {1: 1e4, 2: 1e3, 3: 1e3}, {(1, 2)})
    assert made.thinning[2] >= made.thinning[1] > 0


def test_long_and_rare_spans_are_always_timed(listening):
    each, fine = registry.span("governor.long"), registry.span("governor.fine")
    made = governor(2000.0)
    rates, mean_ns = Counter({each.code: 30, fine.code: 50_000}), {each.code: 3e7, fine.code: 1e4}
    for _ in range(10):
        made.learn(rates, mean_ns, set())
        turn(made)
        assert registry.is_live(each)


def test_blocks_without_fine_spans_come_regularly_and_are_told(listening):
    fine = registry.span("governor.block")
    made = governor(200.0)
    made.learn(Counter({fine.code: 1000}), {fine.code: 1e4}, set())
    dark = []
    for _ in range(4 * EVERY_DENSE):
        turn(made)
        dark.append(not registry.is_live(fine))
        assert made.dark == dark[-1]
    assert sum(dark) == 4


def test_an_evaluation_and_what_it_is_called_from_are_always_timed(listening):
    rollout, step = registry.span("governor.rollout"), registry.span("governor.step")
    evaluation = registry.span("governor.evaluation", Phase.EVALUATE)
    made = governor(200.0)
    calls = {(rollout.code, evaluation.code), (evaluation.code, step.code)}
    codes = [each.code for each in (rollout, evaluation, step)]
    rates, mean_ns = Counter(dict.fromkeys(codes, 1000)), dict.fromkeys(codes, 1e4)
    seen = []
    for _ in range(4 * EVERY_DENSE):
        turn(made)
        made.learn(rates, mean_ns, calls)
        seen.append((registry.is_live(evaluation), registry.is_live(rollout), registry.is_live(step)))
    assert all(live for live, _, _ in seen)
    assert all(live for _, live, _ in seen[1:])
    assert not all(live for _, _, live in seen)


def test_a_span_open_when_switched_off_writes_its_own_end_and_no_other(listening):
    fine = registry.span("governor.open")
    made = governor(200.0)
    made.learn(Counter({fine.code: 1000}), {fine.code: 1e4}, set())
    with fine:
        while not made.dark:
            turn(made)
    for _ in range(3):
        with fine:
            pass
    assert listening[0].events[::2] == [fine.code, -fine.code]
    assert made.counted(tallied())[fine.code] == 3


def test_spans_that_come_too_fast_are_thinned_at_once_and_held(listening):
    heavy, light = registry.span("governor.heavy"), registry.span("governor.light")
    made = governor(200.0)
    made.shed(Counter({heavy.code: 90_000, light.code: 10}))
    assert made.thinning == {heavy.code: MAX_THINNING}
    assert turn(made)
    assert not registry.is_live(heavy)
    assert registry.is_live(light)
    made.learn(Counter({heavy.code: 100}), {heavy.code: 1e4}, set())
    assert made.thinning[heavy.code] == MAX_THINNING, "not before the hold is over"


@pytest.mark.parametrize("before", range(12))
def test_where_recording_begins_all_spans_are_timed_however_far_they_are_thinned(listening, before):
    """Regression: spans thinned to one block in 64 before `--after` were never timed in the seconds after it."""
    heavy = registry.span("governor.heavy")
    made = governor(200.0)
    made.shed(Counter({heavy.code: 90_000}))
    for _ in range(before):
        turn(made)
    made.begin()
    lit = []
    for _ in range(1 + (1 << MAX_THINNING)):
        turn(made)
        lit.append(registry.is_live(heavy))
    assert [i for i, is_lit in enumerate(lit) if is_lit] == [0, 1 << MAX_THINNING]


def test_counts_are_exact_under_a_governor_that_switches_all_the_time(listening):
    every = [registry.span(f"governor.exact.{i}") for i in range(4)]
    made = governor(2000.0)
    made.counted(tallied())
    rates = Counter({each.code: 50_000 for each in every})
    mean_ns = {each.code: 1e4 for each in every}
    enough = threading.Event()
    called: list[Counter[int]] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        calls: Counter[int] = Counter()
        while not enough.is_set():
            outer, inner = chance.sample(every, 2)
            with outer, inner:
                calls.update((outer.code, inner.code))
        called.append(calls)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    counted: Counter[int] = Counter()
    pause = threading.Event()
    for i in range(60):
        turn(made)
        pause.wait(0.002)
        if i % 5 == 0:
            made.learn(rates, mean_ns, set())
        counted += made.counted(tallied())
    enough.set()
    for thread in threads:
        thread.join()
    counted += made.counted(tallied())
    timed = Counter(code for log in listening for code in log.events[::2] if code > 0)
    expected: Counter[int] = sum(called, Counter())
    for each in every:
        assert timed[each.code] + counted[each.code] == expected[each.code]
    assert sum(counted.values()) > 0
    assert isinstance(every[0], Span)
