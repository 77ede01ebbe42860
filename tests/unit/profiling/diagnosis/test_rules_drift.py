"""Drift: what grows is found and priced, what only looks like it is told apart, and the split is right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.traces import causes, frame, make_trace, place, seen

from hotloop.phases import Phase
from hotloop.profiling.report import drift as told
from hotloop.profiling.report import view
from hotloop.profiling.report.text import as_text
from hotloop.profiling.trace.drift import BLOCKS, cut, drift, node_costs, one_way, trend
from hotloop.profiling.trace.model import Stretch

WINDOWS = 13
STEADY = [1.0] * BLOCKS
ENV, BACKWARD = 1, 2
"""Ids of the two nodes below the root."""


def training(
    env_us,
    rest_us=STEADY,
    timed=1.0,
    steps=(100,) * WINDOWS,
    episodes=(20,) * WINDOWS,
    updates=None,
    first=("Env.step", Phase.ENV),
):
    """13 windows of 1 s, of which the first is left out and each two of the others make a block.

    `env_us` and `rest_us` are what a call of the environment and of backward takes in each block.
    """
    calls = np.array(steps[1:]).reshape(BLOCKS, 2).sum(1)
    env_s = float((np.array(env_us) * calls).sum()) / 1e6 * WINDOWS / (WINDOWS - 1)
    rest_s = float((np.array(rest_us) * calls).sum()) / 1e6 * WINDOWS / (WINDOWS - 1)
    line = frame("step", "env.py", 12, "mean = sum(self.history) / len(self.history)")
    counts = {"env_steps": sum(steps), "episodes": sum(episodes), "updates": sum(updates or steps)}
    trace = make_trace(
        [place(*first, env_s, sum(steps)), place("backward", Phase.BACKWARD, rest_s, sum(steps))],
        [seen(first[0], [line], env_s)],
        counts,
        windows={"env_steps": steps, "episodes": episodes, "updates": updates or steps},
    )
    stretches = tuple(
        {
            node: Stretch(round(timed * n), round(1e3 * us[i] * round(timed * n)), float(n))
            for node, us in ((ENV, env_us), (BACKWARD, rest_us))
        }
        for i, n in enumerate(calls.tolist())
    )
    thread = replace(trace.thread, stretches=stretches)
    return replace(trace, processes=(replace(trace.main, threads=(thread,)),))


def rising(start_us, slope_us):
    """What a call takes in each block if it grows by `slope_us` with each hundred steps since the first."""
    return [start_us + slope_us * (2 + 2 * i) for i in range(BLOCKS)]


def test_a_history_that_is_summed_each_step_is_found_and_priced_without_it():
    (finding,) = causes(training(rising(0.0, 1_000.0), [2_000.0] * BLOCKS))
    assert (finding.rule, finding.file, finding.line, finding.phase) == ("drift", "env.py", 12, Phase.ENV)
    assert finding.share == pytest.approx(7 / 9)
    assert finding.gain == pytest.approx(9 / 2)
    assert finding.title == "Env.step gets slower and slower: 3.7 times in this run."
    assert "a call takes 3 ms in the first third of the run and 11 ms in the last" in finding.evidence[1]
    assert "1.00 times as long" in finding.evidence[1]


def test_an_optimiser_that_gets_slower_computes_with_subnormal_numbers():
    (finding,) = causes(training(rising(0.0, 1_000.0), [2_000.0] * BLOCKS, first=("Adam.step", Phase.OPTIMISE)))
    assert finding.title == "Adam.step gets slower and slower, by subnormal numbers: 3.7 times in this run."
    assert "torch.set_flush_denormal(True)" in finding.advice


def test_what_a_call_takes_at_the_begin_is_left():
    (finding,) = causes(training(rising(1_000.0, 500.0), [2_000.0] * BLOCKS))
    assert finding.gain == pytest.approx((1 + 3.5 + 2) / (1 + 2))


def test_calls_that_were_not_timed_change_nothing():
    whole, thinned = (causes(training(rising(0.0, 1_000.0), [2_000.0] * BLOCKS, timed)) for timed in (1.0, 0.1))
    assert thinned[0].gain == pytest.approx(whole[0].gain)


def test_a_rest_of_a_few_microseconds_does_not_hide_what_grows():
    """An environment that is nearly all of the loop grows twofold; the acting beside it, 3 %, a third by chance."""
    env, acting = rising(1_000.0, 200.0), rising(40.0, 2.7)
    assert [finding.rule for finding in causes(training(env, acting))] == ["drift"]


def test_growth_is_seen_through_a_machine_that_is_slow_at_times():
    noise = np.array([1.6, 1.0, 1.3, 0.9, 1.5, 1.2])
    (finding,) = causes(training((noise * rising(0.0, 1_000.0)).tolist(), (noise * 2_000.0).tolist()))
    assert finding.rule == "drift"


@pytest.mark.parametrize(
    ("env_us", "rest_us"),
    [
        pytest.param([2_000.0] * BLOCKS, [2_000.0] * BLOCKS, id="nothing grows"),
        pytest.param(rising(0.0, 1_000.0), rising(0.0, 1_000.0), id="all grows alike: the machine"),
        pytest.param([1_000.0, 1_000, 6_000, 1_000, 6_000, 1_000], [2_000.0] * BLOCKS, id="now and then"),
        pytest.param([1_000.0, 1_050, 1_100, 1_200, 1_300, 1_350], [2_000.0] * BLOCKS, id="a little"),
        pytest.param([1_000.0] * BLOCKS, [4_000.0, 3_500, 3_000, 2_500, 2_000, 1_500], id="only the rest falls"),
        pytest.param([5.0, 10, 15, 20, 25, 30], [2_000.0] * BLOCKS, id="too small to matter"),
    ],
)
def test_what_is_no_drift_is_not_found(env_us, rest_us):
    assert causes(training(env_us, rest_us)) == []


def test_updates_that_begin_are_a_step_and_no_drift():
    steps = (2_000, 2_000, 2_000, 1_000, *(100,) * 12)
    updates = (0, 0, 0, 50, *(100,) * 12)
    trace = training([1_000.0] * BLOCKS, [2_000.0] * BLOCKS)
    windows = make_trace(
        [place("Env.step", Phase.ENV, 16.0)],
        counts={"env_steps": sum(steps), "updates": sum(updates)},
        windows={"env_steps": steps, "updates": updates, "episodes": [s // 10 for s in steps]},
    )
    blocks = cut(windows)
    assert blocks is not None
    assert blocks.learning_began_s == 3.0
    assert blocks.counts["env_steps"].tolist() == [200.0] * BLOCKS
    assert drift(windows) is None
    assert drift(trace) is None


def test_a_loop_that_is_too_short_says_nothing():
    short = make_trace(
        [place("Env.step", Phase.ENV, 6.0)],
        counts={"env_steps": 6},
        windows={"env_steps": [900, 700, 500, 300, 200, 100]},
    )
    assert cut(short) is None
    assert drift(short) is None
    assert causes(short) == []


def test_a_span_whose_inner_spans_were_not_timed_is_not_known():
    trace = make_trace(
        [place("Outer.step", Phase.ENV, 1.0, 600, [place("Inner.step", Phase.ENV, 12.0, 600)])],
        counts={"env_steps": 1300},
        windows={"env_steps": [100] * WINDOWS},
    )
    both = {1: Stretch(100, 1_000_000, 100.0), 2: Stretch(100, 9_000_000, 100.0)}
    outer = {1: Stretch(100, 10_000_000, 100.0)}
    thread = replace(trace.thread, stretches=(both, both, both, outer, both, both))
    costs = node_costs(replace(trace, processes=(replace(trace.main, threads=(thread,)),)))
    assert costs[1].tolist() == pytest.approx([1e-5, 1e-5, 1e-5, float("nan"), 1e-5, 1e-5], nan_ok=True)
    assert costs[2][0] == pytest.approx(9e-5)


def learning_longer(cost=1):
    """Episodes grow from 10 to 40 steps; steps a second fall by `cost` from block to block."""
    steps = [1_000] + [round(1_000 / cost ** (i // 2)) for i in range(12)]
    episodes = [100] + [round(n / (10 + 6 * (i // 2))) for i, n in enumerate(steps[1:])]
    return steps, episodes


def test_longer_episodes_are_told_and_are_no_fault():
    steps, episodes = learning_longer()
    trace = training([500.0] * BLOCKS, [500.0] * BLOCKS, steps=steps, episodes=episodes)
    found = drift(trace)
    assert found is not None
    assert found.verdict == "episodes"
    assert found.factors.cost_per_step == pytest.approx(1.0)
    assert found.factors.episodes == pytest.approx((29 + 25) / (100 + 62), rel=0.01)
    assert found.factors.steps_per_episode == pytest.approx((100 + 62) / (29 + 25), rel=0.01)
    assert causes(trace) == []
    text = as_text(view.build(trace, []))
    assert "How it changed" in text
    assert "This is learning, not a slow-down." in " ".join(text.split())


def lengths(*of_blocks, steps=1_000):
    """A loop of even speed whose episodes have these lengths in its blocks."""
    episodes = [100] + [round(steps / of_blocks[i // 2]) for i in range(12)]
    return training([500.0] * BLOCKS, [500.0] * BLOCKS, steps=(steps,) * WINDOWS, episodes=episodes)


def test_episodes_that_grow_only_at_first_are_told_too():
    found = drift(lengths(22, 133, 105, 128, 116, 136))
    assert found is not None
    assert found.verdict == "episodes"


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(lengths(50, 22, 133, 30, 116, 40), id="to and fro"),
        pytest.param(lengths(50, 50, 55, 60, 75, 75, steps=500), id="twenty episodes and fourteen: chance"),
        pytest.param(lengths(50, 50, 55, 60, 60, 61), id="a little"),
    ],
)
def test_lengths_that_change_by_chance_are_not_told(trace):
    assert drift(trace) is None


def test_cost_and_episodes_are_told_apart_with_the_phase_that_grows():
    steps, episodes = learning_longer(cost=1.2)
    trace = training([400 * 1.3**i for i in range(BLOCKS)], [600.0] * BLOCKS, steps=steps, episodes=episodes)
    found = drift(trace)
    assert found is not None
    assert found.verdict == "cost and episodes"
    assert found.factors.cost_per_step == pytest.approx(1 / found.factors.env_steps)
    assert found.phases[0].phase == "env"
    assert found.phases[0].early_s == pytest.approx(0.0004 * (1_000 + 1.3 * 833) / 1_833)
    assert "most of it in env" in told.meaning(found)


def test_all_phases_slower_alike_is_the_machine():
    steps = [1_000] + [round(1_000 / 1.2 ** (i // 2)) for i in range(12)]
    slower = [500 * 1.2**i for i in range(BLOCKS)]
    found = drift(training(slower, slower, steps=steps, episodes=[n // 10 for n in steps]))
    assert found is not None
    assert found.verdict == "machine"
    assert "the machine became slower" in told.meaning(found)


def test_a_slower_machine_is_not_blamed_on_a_phase_because_episodes_lengthen_too():
    steps = [1_000] + [round(1_000 / 1.2 ** (i // 2)) for i in range(12)]
    slower = [500 * 1.2**i for i in range(BLOCKS)]
    episodes = [round(n / (10 * 1.3 ** (max(i - 1, 0) // 2))) for i, n in enumerate(steps)]
    found = drift(training(slower, slower, steps=steps, episodes=episodes))
    assert found is not None
    assert found.verdict == "machine and episodes"
    meaning = told.meaning(found)
    assert "This is learning" in meaning and "the machine became slower" in meaning
    assert "most of it" not in meaning


def test_json_has_the_factors_and_their_logarithms():
    steps, episodes = learning_longer(cost=1.2)
    answer = told.as_dict(drift(training([500.0] * BLOCKS, [500.0] * BLOCKS, steps=steps, episodes=episodes)))
    assert answer is not None
    assert set(answer) == {
        "verdict", "early", "late", "factors", "log_factors", "phases", "learning_began_s",
    }  # fmt: skip
    logs = answer["log_factors"]
    assert logs["episodes"] + logs["steps_per_episode"] + logs["cost_per_step"] == pytest.approx(logs["seconds"])
    assert answer["early"]["steps_per_episode"] == pytest.approx(1_833 * 2 / (100 + 52 + 100 + 52), rel=0.01)
    assert told.as_dict(None) is None


def test_a_trend_counts_ordered_pairs():
    assert trend(np.array([1.0, 2.0, 3.0])) == 1.0
    assert trend(np.array([3.0, 2.0, 1.0])) == -1.0
    assert trend(np.array([1.0, 3.0, 2.0])) == pytest.approx(1 / 3)


def test_one_way_is_the_part_that_growth_explains():
    assert one_way(np.array([1.0, 2.0, 2.0, 5.0])) == 1.0
    assert one_way(np.array([5.0, 2.0, 2.0, 1.0])) == 1.0
    assert one_way(np.array([3.0, 3.0])) == 0.0
    # The nearest rising values are 0, 3, 3, 3: of the variance 8.75 (mean 2.25) they leave 2.
    assert one_way(np.array([0.0, 4.0, 2.0, 3.0])) == pytest.approx(1 - 2 / 8.75)
    assert one_way(np.array([0.0, 1.0, 0.0, 1.0])) == pytest.approx(0.5)


def test_growth_that_ends_is_priced_from_a_line_not_from_a_steep_begin():
    """A parabola would say that a call cost nothing before the first block (regression: a gain of 397 times)."""
    (finding,) = causes(training([195.0, 240, 311, 342, 312, 331], [9.0] * BLOCKS))
    assert finding.rule == "drift"
    # The line is too unsure to say that a call ever took less than in the first block: on average 288.5, then 195.
    assert finding.gain == pytest.approx((288.5 + 9) / (195 + 9))
