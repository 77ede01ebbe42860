"""ppo-ricochet as a user calls it: trains with and without memory, is recorded, resumes, plays, learns; mistakes."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refusal

from hotloop.training.agents.load import load_agent

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


def test_steps_and_updates_are_counted(trained: Path) -> None:
    counts = result(trained)
    assert (counts["env_steps"], counts["updates"]) == (96, 3 * 2 * 2)
    assert 0 <= counts["success_rate"] <= 1  # type: ignore[operator]


def test_a_resumed_run_is_bit_identical(trained: Path, place: Path) -> None:
    part, whole = place / "part", place / "whole"
    hotloop(place, "train", "ppo-ricochet", "--resume", trained, *RUN, "--steps", 160, "--out", part)
    hotloop(place, "train", "ppo-ricochet", *SMALL, "--preset", "convlstm", *RUN, "--steps", 160, "--out", whole)
    obs = np.random.default_rng(0).integers(0, 2, (3, 10, 8, 8), dtype=np.uint8)
    one, other = (load_agent(str(result(run)["checkpoint"])) for run in (part, whole))
    memory, fresh = one.initial_memory(3), np.ones(3, np.bool_)
    assert (one.remember(obs, memory, fresh)[1] == other.remember(obs, memory, fresh)[1]).all()


@pytest.mark.slow
def test_evaluation_reports_levels_and_gaps_and_play_shows_a_board(trained: Path, place: Path) -> None:
    evaluated = json.loads(hotloop(place, "evaluate", trained, "--episodes", 4, "--json").stdout)
    assert [row["level"] for row in evaluated["levels"]] == [0, 1, 2, 3]
    for row in evaluated["levels"]:
        solved = row["causes"].get("solved", 0)
        assert row["score_mean"] == solved / row["episodes"]
        assert ("gap_mean" in row) == (solved > 0)
    played = json.loads(hotloop(place, "play", trained, "--json", "--gif", place / "board.gif").stdout)
    assert played["level"] == 0
    assert played["cause"] in ("solved", "timeout")
    assert (place / "board.gif").read_bytes()[:3] == b"GIF"


@pytest.mark.slow
def test_evaluation_levels_can_be_selected(trained: Path, place: Path) -> None:
    evaluated = json.loads(hotloop(place, "evaluate", trained, "--episodes", 4, "--level", "2,1", "--json").stdout)
    assert [row["level"] for row in evaluated["levels"]] == [2, 1]
    assert json.loads(hotloop(place, "play", trained, "--level", "1", "--json").stdout)["level"] == 1
    wrong = hotloop(place, "evaluate", trained, "--level", "4", code=2)
    assert "--level 4: with robots 4 there are levels 0, 1, 2, 3" in wrong.stderr.splitlines()[-1]


@pytest.mark.parametrize("words", [("--observation", "stops"), ("--preset", "rgb"), ("--preset", "lstm")])
def test_training_works_with_other_observations(words: tuple[str, str], place: Path) -> None:
    run = place / words[1]
    hotloop(place, "train", "ppo-ricochet", *SMALL, *words, *RUN, "--steps", 64, "--out", run)
    assert result(run)["env_steps"] == 64


def test_the_spans_and_flags_of_the_study_are_supported(place: Path) -> None:
    run, report = place / "recorded", place / "report.json"
    words = ("--enable-profiling", "--profiling_report", report, "--profiling-summary-freq", 32, "--timesteps", 64)
    others = ("--preset", "faithful", "--eval-episodes", 4, "--no-tensorboard", "--out", run)
    done = hotloop(place, "train", "ppo-ricochet", *SMALL, *words, *others)
    assert done.stderr.count("ppo-ricochet: profile of recorded") == 2, "a summary every 32 steps"
    assert "level 0" in done.stderr
    names = {each["name"] for each in json.loads(report.read_text(encoding="utf-8"))["spans"]}
    assert names >= {
        "env_rgb_observation_generation", "env_rgb_rendering", "env_rgb_draw_grid", "env_rgb_draw_walls",
        "env_rgb_draw_robots", "env_rgb_draw_target", "convlstm_forward_pass", "convlstm_boundary_padding",
        "convlstm_conv_encoder", "convlstm_layers", "convlstm_global_pooling", "recurrent_policy_forward",
        "recurrent_policy_action_value",
    }  # fmt: skip
    explained = json.loads(hotloop(place, "explain", run, "--json").stdout)
    assert explained["counts"]["env_steps"] == 64
    assert explained["counts"]["updates"] == 2 * 2 * 2


def test_small_boards_are_learnt(place: Path) -> None:
    """Two robots on 8×8 boards, observed as planes; random play solves about a third."""
    run = place / "learnt"
    words = ("--size", 8, "--robots", 2, "--bank-boards", 400, "--envs", 32, "--boards", 8)
    hotloop(place, "train", "ppo-ricochet", *words, *RUN[2:], "--eval-episodes", 40, "--steps", 16_384, "--out", run)
    assert result(run)["success_rate"] >= 0.5  # type: ignore[operator]


def test_the_curriculum_advances_when_boards_are_solved(place: Path) -> None:
    run = place / "levels"
    words = ("--curriculum", "--promotion", "0.0", "--max-steps", "1", "--steps", "320")
    done = hotloop(place, "train", "ppo-ricochet", *SMALL, *words, *RUN, "--out", run)
    assert "on to level 1" in done.stderr and "on to level 2" in done.stderr
    with (run / "progress.csv").open(encoding="utf-8") as file:
        assert float(list(csv.DictReader(file))[-1]["level"]) >= 2
    assert result(run)["episodes"] == 320
    assert result(run)["steps_per_episode"] == 1.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--size", "3"], "size"),
        (["--robots", "9"], "robots"),
        (["--boards", "5"], "--boards is 5"),
        (["--level", "7"], "--level is 7"),
        (["--level", "3", "--robots", "1"], "--level is 3: give one of 0, 1, 2"),
        (["--size", "5"], "--size is 5: give at least 7, or a --bank too"),
        (["--preset", "rgb", "--observation", "planes"], "give --no-read-planes"),
        (["--bank", "nowhere"], "nowhere"),
        (["--size", "12", "--observation", "rgb"], "12 cells"),
        (["--core", "lstm"], "lstm reads pictures"),
        (["--precision", "float8"], "precision"),
    ],
)
def test_invalid_options_are_reported_in_one_line(
    words: list[str], message: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    *notices, line = refusal(capsys, "train", "ppo-ricochet", *words, "--out", place / "wrong")
    assert message in line
    assert all("preparing" in each for each in notices)
    assert not (place / "wrong").exists()


@pytest.mark.parametrize(("damage", "message"), [("cut", "damaged or cut off"), ("version", "of version 2")])
def test_an_unreadable_bank_is_rejected_and_not_deleted(
    damage: str, message: str, trained: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del trained  # it created the bank
    made, bank = next((place / "cache" / "hotloop").glob("ricochet-v1-8-4-60")), place / f"bank-{damage}"
    shutil.copytree(made, bank)
    if damage == "cut":
        (bank / "puzzles.parquet").write_bytes((made / "puzzles.parquet").read_bytes()[:500])
    else:
        manifest = json.loads((bank / "manifest.json").read_text(encoding="utf-8"))
        (bank / "manifest.json").write_text(json.dumps(manifest | {"version": 2}), encoding="utf-8")
    before = {file.name: file.read_bytes() for file in bank.iterdir()}
    words = ("--size", "8", "--bank", bank, "--out", place / "wrong")
    assert message in refusal(capsys, "train", "ppo-ricochet", *words)[-1]
    assert {file.name: file.read_bytes() for file in bank.iterdir()} == before
    assert not (place / "wrong").exists()
