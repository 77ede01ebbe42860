"""dqn-mario as a user calls it: trains, resumes, plays, is evaluated and recorded; and what is said to mistakes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("stable_retro", reason="stable-retro is not installed: pip install 'hotloop[nes]'")

from hotloop.clock import now_ns
from hotloop.pipelines import load_agent

SMALL = ("--batch", "8", "--learning-starts", "100", "--buffer", "2000", "--max-steps", "20", "--epsilon-steps", "100")
SMALL += ("--channels", "4", "4", "4", "--hidden", "16", "--epoch", "4", "--kernel", "lean")
COUNTS = ("env_steps", "frames", "updates", "episodes")
RUN = ("--eval-episodes", "2", "--no-tensorboard")


def hotloop(*words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-m", "hotloop", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done


def result(run: Path) -> dict[str, object]:
    return json.loads((run / "result.json").read_text())


def assert_same_weights(one: Path, other: Path) -> None:
    ours, theirs = (load_agent(run)._agent.learner.tensors() for run in (one, other))
    assert all((ours[name] == theirs[name]).all() for name in ours)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    run = tmp_path_factory.mktemp("mario") / "run"
    done = hotloop("train", "dqn-mario", "--workers", 0, *SMALL, *RUN, "--steps", 400, "--out", run)
    return run, done.stderr


def test_training_counts_steps_frames_and_updates_apart(trained: tuple[Path, str]) -> None:
    told = result(trained[0])
    assert (told["env_steps"], told["frames"]) == (400, 1600), "a step is held for four frames"
    assert told["updates"] == 76, "one after every four steps from the hundredth on"
    assert told["episodes"] >= 20, "episodes of at most 20 steps"  # type: ignore[operator]


def test_the_studys_figures_are_said_and_kept(trained: tuple[Path, str]) -> None:
    run, said = trained
    lines = [line for line in said.splitlines() if line.startswith("dqn-mario: epoch")]
    assert len(lines) == result(run)["episodes"] // 4  # type: ignore[operator]
    assert "drops 0 (overwritten unseen 0)" in lines[-1] and "ε 0.010" in lines[-1]
    head, *rows = (run / "progress.csv").read_text().splitlines()
    last = dict(zip(head.split(","), rows[-1].split(","), strict=True))
    for name in ("loss", "td_error", "epsilon", "buffer_fill", "distance_last100", "weight_lag", "wait_transport"):
        assert last[name] != "", name
    assert float(last["lost"]) == 0
    assert 0 < float(last["buffer_fill"]) < 0.3


def test_the_same_seed_learns_the_same_recorded_or_not(trained: tuple[Path, str], tmp_path: Path) -> None:
    again = tmp_path / "again"
    words = ("--workers", 0, *SMALL, "--eval-episodes", 0, "--no-tensorboard", "--no-profile")
    hotloop("train", "dqn-mario", *words, "--steps", 400, "--out", again)
    assert result(again)["return_mean"] == result(trained[0])["return_mean"]
    assert_same_weights(again, trained[0])


def test_resuming_goes_on_with_new_episodes_and_says_so(trained: tuple[Path, str], tmp_path: Path) -> None:
    run = tmp_path / "on"
    done = hotloop("train", "dqn-mario", "--resume", trained[0], "--steps", 480, *RUN, "--out", run)
    assert "new ones" in done.stderr
    told = result(run)
    assert (told["env_steps"], told["updates"]) == (480, 96)
    said = hotloop("train", "dqn-mario", "--resume", trained[0], "--workers", 2, "--out", tmp_path / "no", code=2)
    assert said.stderr.splitlines()[-1].startswith("hotloop") and "--workers 2" in said.stderr
    assert not (tmp_path / "no").exists()


def test_a_trained_agent_plays_and_is_evaluated(trained: tuple[Path, str], tmp_path: Path) -> None:
    told = json.loads(hotloop("play", trained[0], "--json", "--gif", tmp_path / "game.gif").stdout)
    assert told["level"] == "1-1" and told["steps"] <= 20 and told["cause"] in ("limit", "death")
    assert (tmp_path / "game.gif").read_bytes()[:3] == b"GIF"
    rows = json.loads(hotloop("evaluate", trained[0], "--episodes", 2, "--level", "1-1,1-2", "--json").stdout)["levels"]
    assert [(row["level"], row["episodes"], row["success_rate"]) for row in rows] == [("1-1", 2, 0), ("1-2", 2, 0)]
    assert rows[0]["return_mean"] == result(trained[0])["eval_return"], "the episodes of the training's last evaluation"
    said = hotloop("evaluate", trained[0], "--level", "1-9", code=2).stderr
    assert said.count("\n") == 1 and "1-1, 1-2, 1-3, 1-4" in said


def test_workers_feed_the_learner_and_a_run_in_lock_step_can_be_repeated(tmp_path: Path) -> None:
    words = ("--workers", 2, "--lockstep", *SMALL, "--no-tensorboard", "--steps", 240)
    one, other = tmp_path / "one", tmp_path / "other"
    said = hotloop("train", "dqn-mario", *words, "--eval-episodes", 1, "--out", one).stderr
    hotloop("train", "dqn-mario", *words, "--eval-episodes", 0, "--no-profile", "--out", other)
    told, again = result(one), result(other)
    names = (*COUNTS, "return_mean", "score_mean")
    assert [told[name] for name in names] == [again[name] for name in names]
    assert told["eval_score"] is not None
    assert (told["env_steps"], told["updates"]) == (240, 36)
    assert "drops 0 (overwritten unseen 0)" in said and "replaced" not in said
    assert_same_weights(one, other)
    hotloop("train", "dqn-mario", "--resume", one, "--steps", 280, "--eval-episodes", 0, "--out", tmp_path / "on")
    assert (result(tmp_path / "on")["env_steps"], result(tmp_path / "on")["updates"]) == (280, 46)


def test_ctrl_c_saves(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["train", "dqn-mario", "--workers", "0", *SMALL, *RUN, "--seconds", "300", "--out", str(run)]
    command = [sys.executable, "-m", "hotloop", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = now_ns() + 90_000_000_000
    while not (run / "progress.csv").exists() or (run / "progress.csv").read_text().count("\n") < 3:
        assert process.poll() is None and now_ns() < deadline
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=90)
    assert process.returncode == 130
    told = result(run)
    assert told["stopped_by"] == "SIGINT" and Path(str(told["checkpoint"])).is_dir()
    explained = json.loads(hotloop("explain", run, "--json").stdout)
    assert {name: explained["counts"][name] for name in COUNTS} == {name: told[name] for name in COUNTS}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rom", "nowhere.nes"], "cannot be read"),
        (["--level", "1-9"], "--level 1-9"),
        (["--size", "96"], "84 or 128"),
        (["--accumulate", "3"], "--accumulate is 3"),
        (["--buffer", "500"], "--buffer is 500"),
        (["--kernel", "numba"], "numba"),
        (["--precision", "float16"], "for CUDA"),
    ],
)
def test_mistakes_get_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    done = hotloop("train", "dqn-mario", *words, "--out", tmp_path / "run", code=2)
    assert said in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "run").exists()
