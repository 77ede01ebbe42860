"""What a learner says of those who feed it: losses, waiting, the age of weights, epochs; all by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from hotloop.training.collect import Collected, Episode, Restart, Spent
from hotloop.training.run import collector_stats as feeding
from hotloop.training.run.collector_stats import CollectorStats, status
from hotloop.training.run.counts import Episodes
from hotloop.training.tasks import mario


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [0]
    monkeypatch.setattr(feeding, "now_ns", lambda: now[0])
    return now


def got(steps: int, *lengths: int, flag: bool = False, **more: object) -> Collected:
    figures = {"distance": 100.0, "flag": flag, "cause": "death"}
    episodes = tuple(Episode(0, 1.5, length, figures) for length in lengths)
    spent = Spent(act_s=1.0, env_s=5.0, store_s=0.5, weights_s=0.25, report_s=0.25, ratio_s=3.0)
    told: dict[str, object] = {"steps": steps, "frames": 4 * steps, "episodes": episodes, "seconds": 0.0}
    return Collected(**(told | {"spent": spent} | more))  # type: ignore[arg-type]


def test_rates_and_waiting_are_those_of_the_epoch(clock: list[int]) -> None:
    fed = CollectorStats(epoch=2)
    clock[0] = 2_000_000_000
    ended = fed.take(got(40, 10))
    fed.learnt(64)
    assert ended.tolist() == [[1.5], [10.0], [100.0]]
    told = fed.scalars(updates=2)
    assert (told["experience_per_s"], told["consumption_per_s"]) == (20.0, 32.0)
    assert (told["wait_transport"], told["wait_ratio"]) == (0.1, 0.3)
    assert not fed.epoch_over()
    fed.take(got(0, 12, 7))
    assert fed.epoch_over()
    clock[0] = 5_000_000_000
    fed.learnt(0)
    assert fed.next_epoch() == 5.0
    assert not fed.epoch_over(), "one episode belongs to the next"
    told = fed.scalars(updates=2)
    assert told["epochs"] == 1
    assert told["wait_ratio"] is None and told["experience_per_s"] is None, "nothing has happened in it yet"


def test_nothing_ended() -> None:
    assert CollectorStats(1).take(got(4)).shape == (3, 0)
    told = CollectorStats(1).scalars(0)
    assert told["flag_rate_last100"] is None and told["distance_last100"] is None


def test_the_clock_of_the_first_epoch_starts_when_all_are_ready(clock: list[int]) -> None:
    fed = CollectorStats(epoch=1)
    clock[0] = 30_000_000_000  # so long it took to start those who play
    fed.begin()
    clock[0] = 32_000_000_000
    fed.take(got(40, 10))
    assert fed.scalars(0)["experience_per_s"] == 20.0
    assert fed.next_epoch() == 2.0


def test_steps_that_never_came_and_those_of_ended_workers_are_summed_apart() -> None:
    fed = CollectorStats(16)
    fed.take(got(10, 8))
    fed.take(got(4, 9, lost=3))
    fed.take(got(4, lost_with_worker=14))
    fed.take(got(4, lost=1, lost_with_worker=2))
    told = fed.scalars(0)
    assert (told["lost"], told["gone"]) == (4, 16)


def test_flags_are_those_of_the_last_hundred() -> None:
    fed = CollectorStats(1000)
    fed.take(got(1000, *[10] * 90))
    fed.take(got(1000, *[10] * 30, flag=True))
    assert fed.scalars(0)["flag_rate_last100"] == pytest.approx(0.3)


def test_the_age_of_weights_is_that_of_the_one_who_lags_most() -> None:
    fed = CollectorStats(16)
    assert fed.weight_lag(5) == 5
    for version, updates in ((2, 10), (3, 20), (4, 30)):
        fed.published(version, updates)
    assert fed.weight_lag(33) == 3
    fed.take(got(4, lag=2))
    assert fed.weight_lag(33) == 23
    fed.take(got(4, lag=9))
    assert fed.weight_lag(33) == 33, "older than all that is known"


def test_it_goes_on_from_a_checkpoint() -> None:
    fed = CollectorStats(2)
    fed.take(got(10, 12, 3, 3, flag=True, overwritten=5, lost=8, lost_with_worker=2, restarts=(Restart(0, "killed"),)))
    fed.next_epoch()
    again = CollectorStats(2)
    again.restore(json.loads(json.dumps(fed.state())), version=9, updates=40)
    assert again.state() == fed.state()
    assert (again.lost, again.gone, again.overwritten, again.restarts, again.epochs) == (8, 2, 5, 1, 1)
    assert again.weight_lag(44) == 4
    ours, theirs = again.scalars(40), fed.scalars(40)
    assert ours["flag_rate_last100"] == theirs["flag_rate_last100"] == 1


def test_the_status_line_has_what_the_study_monitors() -> None:
    fed = CollectorStats(1)
    fed.take(got(40, 10, flag=True))
    numbers = fed.scalars(3) | {"env_steps": 1234, "updates": 3, "loss": 0.01, "td_error": 0.5, "epsilon": 0.25}
    line = status(numbers | {"buffer_fill": 0.5, "return_last100": None, "experience_per_s": 321.0}, 2.5)
    for said in (
        "(2.5 s)", "processed 1,234 steps", "batches 3", "drops 0 (overwritten unseen 0, gone with ended workers 0)",
        "buffer 50%, GPU –", "experience 321/s", "consumption",
        "wait 10.0% on transport and 30% for the learner", "weights 3 updates old", "loss 0.0100", "TD error 0.500",
        "reward –", "distance 100", "flags 100%", "ε 0.250",
    ):  # fmt: skip
        assert said in line
    assert "\n" not in line


def test_episodes_followed_elsewhere_count_like_those_followed_here() -> None:
    here, elsewhere = Episodes(1), Episodes(1)
    for reward, over in ((1.0, False), (2.0, True), (4.0, True)):
        here.step(np.array([reward]), np.array([over]), np.array([10 * reward]))
    elsewhere.take(np.array([[3.0, 4.0], [2.0, 1.0], [20.0, 40.0]]))
    assert here.means() == elsewhere.means()
    assert elsewhere.means()["score_best"] == 40


def test_how_busy_the_gpu_is_where_it_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mario.gpu_busy() is None, "there is none in use here"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "utilization", lambda: 37)
    assert mario.gpu_busy() == 0.37

    def refuse() -> int:
        raise RuntimeError("Not Supported")

    monkeypatch.setattr(torch.cuda, "utilization", refuse)
    assert mario.gpu_busy() is None, "not every device tells"
    assert "GPU 37%" in status({"gpu_busy": 0.37}, 1.0)
