"""bench/true_cost.py: turns are paired with their neighbours, rests are no running time, and a trial run works."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("gymnasium")

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    yield importlib.import_module("true_cost")
    for name in ("true_cost", "measure", "scripts", "scripts.cost", "scripts.cost.progress"):
        if name not in before:
            sys.modules.pop(name, None)


def cost(bench: ModuleType, script: str, ratio: float, stated: float | None):
    found = bench.Estimate(ratio, ratio - 0.01, ratio + 0.01)
    return bench.Cost(script, found, found, found, found, stated, 50.0, 30, 1.0, 2.0)


def test_a_machine_that_changes_its_speed_between_rounds_does_not_change_the_ratio(bench: ModuleType) -> None:
    speed = np.linspace(1.0, 3.0, 40)
    times = {bench.PLAIN: 98.0 * speed, bench.AGAIN: 102.0 * speed, bench.RECORDED: 110.0 * speed}
    found = bench.estimate(bench.mean_ratio_of, *bench.slow_down_pair(times))
    assert (found.value, found.low, found.high) == pytest.approx((1.1, 1.1, 1.1))


def test_the_interval_contains_the_ratio_of_noisy_turns(bench: ModuleType) -> None:
    noise = np.random.default_rng(0)
    plain, again, recorded = noise.lognormal(0, 0.1, (3, 400))
    times = {bench.PLAIN: plain, bench.AGAIN: again, bench.RECORDED: 1.05 * recorded}
    found = bench.estimate(bench.mean_ratio_of, *bench.slow_down_pair(times))
    assert found.low < 1.05 < found.high
    assert found.high - found.low < 0.04


def test_the_mean_counts_a_cost_that_comes_in_every_fourth_turn(bench: ModuleType) -> None:
    plain = np.full(40, 100.0)
    recorded = np.where(np.arange(40) % 4 == 0, 120.0, 100.0)
    pair = bench.slow_down_pair({bench.PLAIN: plain, bench.AGAIN: plain, bench.RECORDED: recorded})
    assert bench.ratio_of(*pair) == 1.0
    # The four largest and the four smallest of forty ratios are left out: six of 32 remain.
    assert bench.mean_ratio_of(*pair) == pytest.approx(1 + 0.2 * 6 / 32)


def test_each_takes_one_turn_a_round_in_changing_order(bench: ModuleType) -> None:
    taken: list[str] = []

    def turn_of(name: str):
        def turn(seconds: float) -> float:
            taken.append(name)
            return seconds * len(taken)

        return turn

    times = bench.take_turns({name: turn_of(name) for name in "abc"}, 30, 2.0)
    rounds = [taken[i : i + 3] for i in range(0, 90, 3)]
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds)
    assert len({tuple(each) for each in rounds}) == 6
    assert [times[name][4] for name in rounds[4]] == [26.0, 28.0, 30.0]


def test_a_share_of_all_time_becomes_one_of_the_running_time(bench: ModuleType) -> None:
    assert bench.share_without_rests(0.02, 30.0, 20.0) == pytest.approx(0.06)
    with pytest.raises(ValueError, match="31"):
        bench.share_without_rests(0.02, 30.0, 31.0)


def test_the_difference_compares_shares_of_the_recorded_time(bench: ModuleType) -> None:
    assert cost(bench, "a", 1.25, 0.15).difference_points == pytest.approx(5.0)
    assert cost(bench, "a", 1.0, 0.02).difference_points == pytest.approx(-2.0)


def test_the_last_line_has_the_worst_of_all(bench: ModuleType) -> None:
    costs = [cost(bench, "a", 1.0, 0.03), cost(bench, "b", 1.25, None), cost(bench, "c", 1.02, 1 - 1 / 1.02)]
    line = bench.summary(costs)
    assert (
        line
        == "median slow-down 1.020, worst upper end 1.260 (b), worst difference -3.00 points (a); explain FAILED for 1"
    )
    assert bench.summary(costs[1:2]).endswith("(b); explain FAILED for 1")
    assert bench.cells(costs[1])[5:7] == ["failed", ""]


def test_the_scripts_do_not_know_the_profiler(bench: ModuleType) -> None:
    assert len(bench.NAMES) >= 12
    for name in bench.NAMES:
        text = (bench.SCRIPTS / f"{name}.py").read_text(encoding="utf-8")
        assert "hotloop" not in text
        assert "tick(" in text


@pytest.mark.slow
def test_a_trial_run_measures_a_script(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCH / "true_cost.py"), "--quick", "--json", "--only", "q_learning_maze"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["script"] == "q_learning_maze"
    assert row["slow_down"]["low"] <= row["slow_down"]["value"] <= row["slow_down"]["high"]
    assert row["control"]["value"] > 0
    assert row["rounds"] >= 2
    assert row["recorded_start_up_s"] > 0
