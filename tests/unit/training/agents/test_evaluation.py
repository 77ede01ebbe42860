from __future__ import annotations

import json

import numpy as np
import pytest

from hotloop.cli import evaluate
from hotloop.errors import HotloopError
from hotloop.training.agents import evaluation
from hotloop.training.pipelines.dqn_snake import Config
from hotloop.training.tasks import game as games
from hotloop.training.tasks import snake


def played(score: list[int], cause: str = "wall") -> games.Played:
    return games.Played(
        np.array(score), np.array(score) * 10.0, np.full(len(score), 4), np.array([cause] * len(score), object), "win"
    )


def test_a_board_is_described_by_hand() -> None:
    told = evaluation.describe(played([0, 10, 20, 30, 40]), {"board": 10})
    assert (told["score_mean"], told["score_min"], told["score_max"]) == (20.0, 0, 40)
    assert told["score_percentiles"] == {"p5": 2.0, "p25": 10.0, "p50": 20.0, "p75": 30.0, "p95": 38.0}
    assert told["score_histogram"]["edges"] == [0, 5, 10, 15, 20, 25, 30, 35, 40, 45]
    assert told["score_histogram"]["counts"] == [1, 0, 1, 0, 1, 0, 1, 0, 1]
    assert (told["return_mean"], told["steps_mean"], told["success_rate"]) == (200.0, 4.0, 0.0)
    assert told["causes"] == {"wall": 5}


def test_the_histogram_holds_every_score() -> None:
    for scores in ([3], [0, 97], [5, 5, 5], [0, 9], [0, 10]):
        counts = evaluation.describe(played(scores), {"board": 10})["score_histogram"]["counts"]
        assert sum(counts) == len(scores)
        assert len(counts) <= 10


def test_the_interval_of_a_constant_is_that_constant_and_of_a_coin_its_deviation() -> None:
    assert evaluation.bootstrap(np.full(50, 3)) == evaluation.Estimate(3.0, 3.0, 3.0)
    coin = evaluation.bootstrap(np.array([0, 1] * 200))
    # 1.96 standard errors of a fair coin thrown 400 times: 1.96 · 0.5 / 20.
    assert coin.mean == 0.5
    assert coin.high - 0.5 == pytest.approx(0.049, abs=0.006)
    assert 0.5 - coin.low == pytest.approx(0.049, abs=0.006)


def test_two_agents_are_compared_game_by_game() -> None:
    ours, theirs = [1, 50, 20, 90], [0, 49, 19, 89]
    assert evaluation.compare(played(ours), played(theirs), {"board": 10}) == {
        "board": 10, "difference": 1.0, "low": 1.0, "high": 1.0, "verdict": "better"
    }  # fmt: skip
    assert evaluation.compare(played(theirs), played(ours), {})["verdict"] == "worse"
    assert evaluation.compare(played([1, 2, 3, 0]), played([2, 1, 0, 3]), {})["verdict"] == "inconclusive"


def test_of_one_game_the_interval_is_unknown_in_json_and_in_text() -> None:
    told = evaluation.describe(played([7]), {"board": 10})
    assert (told["score_mean"], told["score_low"], told["score_high"]) == (7.0, None, None)
    gain = evaluation.compare(played([7]), played([3]), {"board": 10})
    assert gain == {"board": 10, "difference": 4.0, "low": None, "high": None, "verdict": "inconclusive"}
    json.dumps([told, gain], allow_nan=False)
    whole = {
        "pipeline": "dqn-snake", "env_steps": 1, "checkpoint": "a", "boards": [told],
        "compare": {"checkpoint": "b", "boards": [gain]},
    }  # fmt: skip
    assert "  7.00        unknown" in evaluate._text(whole, "board")
    assert "board 10: +4.00 (unknown) against b on the same games: inconclusive" in evaluate._text(whole, "board")
    assert "| 10 | 7.00 | unknown |" in evaluate._markdown(whole, "board")


def test_held_out_games_are_the_same_for_all_and_none_of_the_training_games() -> None:
    held_out = games.held_out_seeds(200)
    assert held_out[:10] == games.held_out_seeds(10)
    training = {seed for run in range(20) for seed in games.training_seeds(run, 256)}
    assert len(training) == 20 * 256
    assert not training & set(held_out)


def test_the_games_that_choose_the_best_checkpoint_are_not_those_that_test_it() -> None:
    choosing = games.held_out_seeds(200, choosing=True)
    assert choosing[:10] == games.held_out_seeds(10, choosing=True)
    assert not set(choosing) & set(games.held_out_seeds(200))
    assert not set(choosing) & {seed for run in range(20) for seed in games.training_seeds(run, 256)}

    def first_seen(**kind: bool) -> np.ndarray:
        seen: list[np.ndarray] = []
        snake.play_episodes(lambda obs: seen.append(obs) or np.zeros(len(obs), np.int64), Config(), 64, **kind)
        return seen[0]

    assert np.array_equal(first_seen(), first_seen(choosing=False))
    assert not np.array_equal(first_seen(), first_seen(choosing=True))


def test_a_board_that_cannot_be_is_refused_and_not_taken_for_none() -> None:
    for board in (0, 4, 65, -1):
        with pytest.raises(HotloopError, match=f"--board {board}: give a size from 5 to 64"):
            snake.places(Config(), [10, board], False)
    with pytest.raises(HotloopError, match="board is 0"):
        snake.play_episodes(lambda obs: np.zeros(len(obs), np.int64), Config(), 2, 0)


def test_an_agent_that_goes_straight_dies_at_the_wall() -> None:
    told = snake.play_episodes(lambda obs: np.zeros(len(obs), np.int64), Config(board=6, features="basic"), 8)
    # The head starts in column 3 of 0..5: two steps are fine, the third is the wall.
    assert told.length.tolist() == [3] * 8
    assert set(told.cause) == {"wall"}
    assert told.summary()["success_rate"] == 0.0


def test_an_agent_that_circles_runs_out_of_time() -> None:
    game = Config(board=6, features="basic", max_steps=12, reward_food=0.0, reward_shaping=0.0)
    told = snake.play_episodes(lambda obs: np.ones(len(obs), np.int64), game, 4)
    timeouts = told.cause == "timeout"
    assert timeouts.any()
    assert set(told.length[timeouts]) == {12}
    assert told.returned[timeouts] == pytest.approx([-5 - 12 * 0.01 + 0.01 * k for k in told.score[timeouts]], abs=1e-5)


def test_returns_below_zero_have_a_place_in_the_histogram() -> None:
    told = evaluation.describe(
        games.Played(np.array([-92.5, 12.25]), np.zeros(2), np.zeros(2), np.array(["off"] * 2), "lap"),
        {"environment": "x"},
    )
    assert told["environment"] == "x"
    assert (told["score_min"], told["score_max"], sum(told["score_histogram"]["counts"])) == (-92.5, 12.25, 2)
