"""sac-carracing as a user calls it: trains, resumes, plays, drives the official game; and what is said to mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("Box2D")

from hotloop.pipelines import carracing, load_agent, sac_carracing
from hotloop.pipelines.options import Options

SMALL = ("--envs", "2", "--batch", "16", "--learning-starts", "40", "--buffer", "2000", "--max-frames", "60")
SMALL += ("--channels", "4", "4", "4", "--hidden", "16", "--threads", "1", "--updates-per-step", "2")
RUN = ("--eval-episodes", "2", "--no-tensorboard")


def hotloop(*words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-m", "hotloop", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("cars") / "run"
    hotloop("train", "sac-carracing", *SMALL, *RUN, "--steps", 100, "--out", run)
    return run


def test_training_counts_decisions_frames_and_updates_apart(trained: Path) -> None:
    told = json.loads((trained / "result.json").read_text())
    assert told["env_steps"] == 100
    assert told["frames"] == 400, "a decision is held for four frames"
    # From the 40th decision on, after each of 31 vector steps: two updates.
    assert told["updates"] == 2 * 31
    assert told["episodes"] == 6, "an episode of 60 frames is 15 decisions, and each of two cars made 50"
    explained = json.loads(hotloop("explain", trained, "--json").stdout)
    assert explained["counts"] | {"updates": 62, "env_steps": 100, "frames": 400} == explained["counts"]


def test_the_same_seed_learns_the_same_recorded_or_not(trained: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    hotloop("train", "sac-carracing", *SMALL, *RUN, "--steps", 100, "--no-profile", "--kernel", "lean", "--out", again)
    one, other = (json.loads((run / "result.json").read_text()) for run in (trained, again))
    assert one["kernel"] in ("lean", "torch")
    if one["kernel"] == "lean":
        assert (one["return_mean"], one["eval_return"]) == (other["return_mean"], other["eval_return"])
        obs = np.random.default_rng(0).integers(0, 256, (4, 3, 64, 64), dtype=np.uint8)
        assert (load_agent(trained).act(obs) == load_agent(again).act(obs)).all()


def test_resuming_goes_on_with_new_episodes_and_says_so(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "on"
    done = hotloop("train", "sac-carracing", "--resume", trained, "--steps", 140, *RUN, "--out", run)
    assert "new episodes" in done.stderr
    told = json.loads((run / "result.json").read_text())
    assert (told["env_steps"], told["updates"]) == (140, 62 + 2 * 20)
    assert told["kernel"] == json.loads((trained / "result.json").read_text())["kernel"]


def test_verbose_prints_the_phases_of_every_tenth_update(tmp_path: Path) -> None:
    done = hotloop("train", "sac-carracing", *SMALL, *RUN, "--steps", 60, "--verbose", "--out", tmp_path / "run")
    assert done.stderr.count("matrix products run at up to") == (2 * 11) // 10
    assert "conv3" in done.stderr and "soft update" in done.stderr


def test_a_trained_agent_plays_and_is_filmed(trained: Path, tmp_path: Path) -> None:
    told = json.loads(hotloop("play", trained, "--json", "--gif", tmp_path / "lap.gif").stdout)
    assert told["environment"] == "hotloop/CarRacing-v0"
    assert (told["steps"], told["cause"]) == (15, "time")
    assert (tmp_path / "lap.gif").read_bytes()[:3] == b"GIF"
    assert "▀" in hotloop("play", trained).stdout


def test_evaluation_is_the_same_twice_and_the_official_game_can_be_asked_for(trained: Path) -> None:
    words = ("evaluate", trained, "--episodes", 2, "--max-steps", 24, "--json")
    one, other = (json.loads(hotloop(*words, *more).stdout) for more in ([], ["--official"]))
    assert [row["environment"] for row in other["environments"]] == ["hotloop/CarRacing-v0", "CarRacing-v3"]
    assert one["environments"][0] == other["environments"][0]
    ours, official = other["environments"]
    assert official["steps_mean"] == ours["steps_mean"] == 6
    assert official["score_mean"] == pytest.approx(ours["score_mean"], abs=5)


def test_from_numbers(tmp_path: Path) -> None:
    run = tmp_path / "run"
    small = ("--batch", 16, "--learning-starts", 40, "--hidden", 16, 16, "--max-frames", 60)
    hotloop("train", "sac-carracing", "--preset", "vector", *small, *RUN, "--steps", 60, "--out", run)
    assert load_agent(run).act(np.zeros(36, np.float32)).shape == (2,)
    said = hotloop("evaluate", run, "--official", code=2).stderr
    assert said.count("\n") == 1 and "--official" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--state", "vector"], "--preset vector"),
        (["--state", "sideways"], "sideways"),
        (["--size", "50"], "64, 84 or 96"),
        (["--buffer", "500"], "--buffer is 500"),
        (["--channels", "4", "4"], "--channels"),
        (["--kernel", "numba"], "numba"),
    ],
)
def test_mistakes_get_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    done = hotloop("train", "sac-carracing", *words, "--out", tmp_path / "run", code=2)
    assert said in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_of_the_other_state_is_refused(trained: Path, tmp_path: Path) -> None:
    words = ("--resume", trained, "--state", "vector", "--no-shared", "--shift", "0", "--latent", "0")
    said = hotloop("train", "sac-carracing", *words, "--out", tmp_path / "run", code=2).stderr
    assert said.count("\n") == 1 and "was trained with visual" in said
    said = hotloop("train", "dqn-snake", "--resume", trained, "--out", tmp_path / "run", code=2).stderr
    assert said.count("\n") == 1 and "sac-carracing" in said
    said = hotloop("play", trained, "--board", "8", code=2).stderr
    assert said.count("\n") == 1 and "no board" in said


def test_without_box2d_there_is_one_line(tmp_path: Path) -> None:
    script = "import sys; sys.modules['Box2D'] = None; from hotloop.cli.main import main; sys.exit(main())"
    words = ["train", "sac-carracing", *SMALL, "--steps", "10", "--out", str(tmp_path / "run")]
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert "hotloop[carracing]" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_what_is_seen_begins_anew_with_an_episode() -> None:
    frames = np.arange(2, dtype=np.uint8).reshape(2, 1, 1)
    stacks = carracing.Stacks(frames, 3)
    assert stacks.seen[:, :, 0, 0].tolist() == [[0, 0, 0], [1, 1, 1]]
    stacks.push(frames + 10, np.array([False, True]))
    assert stacks.seen[:, :, 0, 0].tolist() == [[0, 0, 10], [11, 11, 11]]
    numbers = carracing.Stacks(np.zeros((2, 36), np.float32), 3)
    assert numbers.seen.shape == (2, 36)


def test_gas_and_brake_are_from_zero_to_one() -> None:
    three = sac_carracing.Config(action_form="three")
    assert carracing.controls(np.array([[-1.0, -1.0, 0.5]]), three).tolist() == [[-1.0, 0.0, 0.75]]
    two = sac_carracing.Config()
    assert carracing.controls(np.array([[-1.0, -1.0]]), two).tolist() == [[-1.0, -1.0]]


@pytest.mark.slow
def test_it_learns_to_drive_from_numbers(tmp_path: Path) -> None:
    config = sac_carracing.PRESETS["vector"][0]
    result = sac_carracing.train(config, Options(steps=30_000, eval_every=0, eval_episodes=5, out=tmp_path / "run"))
    assert result.eval_return is not None and result.eval_return > 200, "standing still gives -100"
