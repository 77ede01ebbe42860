"""ppo-ricochet as a user calls it: trains with and without memory, resumes to the same bits, plays; and mistakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hotloop.pipelines import load_agent

SMALL = ("--size", "8", "--bank-boards", "60", "--envs", "8", "--boards", "4", "--rollout", "4", "--channels", "4")
SMALL += ("--hidden", "16", "--threads", "1", "--epochs", "2")
RUN = ("--eval-episodes", "4", "--no-tensorboard", "--no-profile")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ricochet")


def hotloop(place: Path, *words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"XDG_CACHE_HOME": str(place / "cache")}
    command = [sys.executable, "-m", "hotloop", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == code, done.stderr
    return done


def result(run: Path) -> dict[str, object]:
    return json.loads((run / "result.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def trained(place: Path) -> Path:
    run = place / "drc"
    hotloop(place, "train", "ppo-ricochet", *SMALL, "--preset", "convlstm", *RUN, "--steps", 96, "--out", run)
    return run


def test_iterations_are_counted(trained: Path) -> None:
    told = result(trained)
    assert (told["env_steps"], told["updates"]) == (96, 3 * 2 * 2)
    assert 0 <= told["success_rate"] <= 1  # type: ignore[operator]


def test_resuming_goes_on_to_the_same_bits(trained: Path, place: Path) -> None:
    part, whole = place / "part", place / "whole"
    hotloop(place, "train", "ppo-ricochet", "--resume", trained, *RUN, "--steps", 160, "--out", part)
    hotloop(place, "train", "ppo-ricochet", *SMALL, "--preset", "convlstm", *RUN, "--steps", 160, "--out", whole)
    obs = np.random.default_rng(0).integers(0, 2, (3, 10, 8, 8), dtype=np.uint8)
    one, other = (load_agent(str(result(run)["checkpoint"])) for run in (part, whole))
    memory, fresh = one.nothing(3), np.ones(3, np.bool_)
    assert (one.remember(obs, memory, fresh)[1] == other.remember(obs, memory, fresh)[1]).all()


def test_evaluation_has_levels_and_gaps_and_play_shows_a_board(trained: Path, place: Path) -> None:
    told = json.loads(hotloop(place, "evaluate", trained, "--episodes", 4, "--json").stdout)
    assert [row["level"] for row in told["levels"]] == [0, 1, 2, 3]
    for row in told["levels"]:
        solved = row["causes"].get("solved", 0)
        assert row["score_mean"] == solved / row["episodes"]
        assert ("gap_mean" in row) == (solved > 0)
    played = json.loads(hotloop(place, "play", trained, "--json", "--gif", place / "board.gif").stdout)
    assert played["level"] == 0
    assert played["cause"] in ("solved", "timeout")
    assert (place / "board.gif").read_bytes()[:3] == b"GIF"


@pytest.mark.parametrize("observation", ["stops", "rgb"])
def test_other_observations_train_too(observation: str, place: Path) -> None:
    run = place / observation
    words = ("--observation", observation, "--core", "cnn" if observation == "stops" else "drc")
    hotloop(place, "train", "ppo-ricochet", *SMALL, *words, *RUN, "--steps", 64, "--out", run)
    assert result(run)["env_steps"] == 64


def test_the_curriculum_goes_on_when_boards_are_solved(place: Path) -> None:
    run = place / "levels"
    words = ("--curriculum", "--promotion", "0.0", "--max-steps", "1", "--steps", "320")
    done = hotloop(place, "train", "ppo-ricochet", *SMALL, *words, *RUN, "--out", run)
    assert "on to level 1" in done.stderr and "on to level 2" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--size", "3"], "size"),
        (["--robots", "9"], "robots"),
        (["--boards", "5"], "--boards is 5"),
        (["--level", "7"], "--level is 7"),
        (["--bank", "nowhere"], "nowhere"),
        (["--size", "12", "--observation", "rgb"], "12 cells"),
    ],
)
def test_mistakes_get_one_line(words: list[str], said: str, place: Path) -> None:
    done = hotloop(place, "train", "ppo-ricochet", *words, "--out", place / "wrong", code=2)
    last = done.stderr.splitlines()[-1]
    assert said in last
    assert "Traceback" not in done.stderr
    assert not (place / "wrong").exists()
