"""dqn-mario as a user calls it: trains, resumes, plays, is evaluated and recorded; reports mistakes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import psutil
import pytest

pytest.importorskip("stable_retro", reason="stable-retro is not installed: pip install 'hotloop[nes]'")

from tests.refusals import refusal

from hotloop.clock import now_ns
from hotloop.training.agents.load import load_agent
from hotloop.training.tasks import mario

SMALL = ("--batch", "8", "--learning-starts", "100", "--buffer", "2000", "--max-steps", "20", "--epsilon-steps", "100")
SMALL += ("--channels", "4", "4", "4", "--hidden", "16", "--epoch", "4", "--kernel", "lean")
COUNTS = ("env_steps", "frames", "updates", "episodes")
NO_LOSS = "drops 0 (overwritten unseen 0, gone with ended workers 0)"
PATIENCE_S = 100.0
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


def test_steps_frames_and_updates_are_counted_separately(trained: tuple[Path, str]) -> None:
    counts = result(trained[0])
    assert (counts["env_steps"], counts["frames"]) == (400, 1600), "a step is held for four frames"
    assert counts["updates"] == 76, "one after every four steps from the hundredth on"
    assert counts["episodes"] >= 20, "episodes of at most 20 steps"  # type: ignore[operator]


def test_the_metrics_of_the_study_are_printed_and_saved(trained: tuple[Path, str]) -> None:
    run, stderr = trained
    lines = [line for line in stderr.splitlines() if line.startswith("dqn-mario: epoch")]
    assert len(lines) == result(run)["episodes"] // 4  # type: ignore[operator]
    assert NO_LOSS in lines[-1] and "GPU –" in lines[-1] and "ε 0.010" in lines[-1]
    head, *rows = (run / "progress.csv").read_text().splitlines()
    last = dict(zip(head.split(","), rows[-1].split(","), strict=True))
    for name in ("loss", "td_error", "epsilon", "buffer_fill", "distance_last100", "weight_lag", "wait_transport"):
        assert last[name] != "", name
    assert float(last["lost"]) == 0
    assert 0 < float(last["buffer_fill"]) < 0.3


@pytest.mark.slow
def test_recording_does_not_change_what_is_learnt(trained: tuple[Path, str], tmp_path: Path) -> None:
    again = tmp_path / "again"
    words = ("--workers", 0, *SMALL, "--eval-episodes", 0, "--no-tensorboard", "--no-profile")
    hotloop("train", "dqn-mario", *words, "--steps", 400, "--out", again)
    assert result(again)["return_mean"] == result(trained[0])["return_mean"]
    assert_same_weights(again, trained[0])


@pytest.mark.slow
def test_resuming_starts_new_episodes_and_reports_it(trained: tuple[Path, str], tmp_path: Path) -> None:
    run = tmp_path / "on"
    done = hotloop("train", "dqn-mario", "--resume", trained[0], "--steps", 480, *RUN, "--out", run)
    assert "new ones" in done.stderr
    resumed = result(run)
    assert (resumed["env_steps"], resumed["updates"]) == (480, 96)
    refused = hotloop("train", "dqn-mario", "--resume", trained[0], "--workers", 2, "--out", tmp_path / "no", code=2)
    assert refused.stderr.splitlines()[-1].startswith("hotloop") and "--workers 2" in refused.stderr
    assert not (tmp_path / "no").exists()


def test_a_trained_agent_plays_and_is_evaluated(
    trained: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played = json.loads(hotloop("play", trained[0], "--json", "--gif", tmp_path / "game.gif").stdout)
    assert played["level"] == "1-1" and played["steps"] <= 20 and played["cause"] in ("limit", "death")
    assert (tmp_path / "game.gif").read_bytes()[:3] == b"GIF"
    rows = json.loads(hotloop("evaluate", trained[0], "--episodes", 2, "--level", "1-1,1-2", "--json").stdout)["levels"]
    assert [(row["level"], row["episodes"], row["success_rate"]) for row in rows] == [("1-1", 2, 0), ("1-2", 2, 0)]
    agent = load_agent(trained[0])
    same, chosen_by = (
        mario.play_episodes(agent.act, agent.config, 2, "1-1", choosing=choosing).summary()["eval_return"]
        for choosing in (False, True)
    )
    assert rows[0]["return_mean"] == same
    assert result(trained[0])["eval_return"] == chosen_by, "evaluated in its own process, on other episodes"
    (line,) = refusal(capsys, "evaluate", trained[0], "--level", "1-9")
    assert "1-1, 1-2, 1-3, 1-4" in line


LOCKSTEP = ("--workers", 2, "--lockstep", *SMALL, "--no-tensorboard", "--steps", 240)


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run with two workers."""
    run = tmp_path_factory.mktemp("fed") / "run"
    return run, hotloop("train", "dqn-mario", *LOCKSTEP, "--eval-episodes", 1, "--out", run).stderr


def test_workers_are_recorded_and_their_steps_counted_once(fed: tuple[Path, str]) -> None:
    explained = json.loads(hotloop("explain", fed[0], "--json").stdout)
    players = [
        each for each in explained["processes"]
        if not each["main"] and any(row["name"] == "env.step" for thread in each["threads"] for row in thread["spans"])
    ]  # fmt: skip
    assert len(players) == 2
    assert explained["counts"]["env_steps"] == 240, "counted only where they arrive"


@pytest.mark.slow
def test_workers_feed_the_learner_and_lockstep_runs_are_repeatable(fed: tuple[Path, str], tmp_path: Path) -> None:
    (one, stderr), other = fed, tmp_path / "other"
    hotloop("train", "dqn-mario", *LOCKSTEP, "--eval-episodes", 0, "--no-profile", "--out", other)
    first, again = result(one), result(other)
    names = (*COUNTS, "return_mean", "score_mean")
    assert [first[name] for name in names] == [again[name] for name in names]
    assert first["eval_score"] is not None
    assert (first["env_steps"], first["updates"]) == (240, 36)
    assert NO_LOSS in stderr and "replaced" not in stderr
    assert stderr.index("workers (") < stderr.index("training dqn-mario"), "the clock starts when they are ready"
    assert_same_weights(one, other)
    hotloop("train", "dqn-mario", "--resume", one, "--steps", 280, "--eval-episodes", 0, "--out", tmp_path / "on")
    assert (result(tmp_path / "on")["env_steps"], result(tmp_path / "on")["updates"]) == (280, 46)


def test_ctrl_c_saves_a_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["train", "dqn-mario", "--workers", "0", *SMALL, *RUN, "--seconds", "300", "--out", str(run)]
    command = [sys.executable, "-m", "hotloop", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = now_ns() + 90_000_000_000
    while not (run / "progress.csv").exists() or (run / "progress.csv").read_text().count("\n") < 3:
        assert process.poll() is None and now_ns() < deadline
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    stopped = result(run)
    assert stopped["stopped_by"] == "SIGINT" and Path(str(stopped["checkpoint"])).is_dir()
    explained = json.loads(hotloop("explain", run, "--json").stdout)
    assert {name: explained["counts"][name] for name in COUNTS} == {name: stopped[name] for name in COUNTS}


class Run:
    """A training with workers in another process, for tests that kill parts of it."""

    def __init__(self, folder: Path, *words: object) -> None:
        self.path, self._log = folder / "run", folder / "log"
        call = ("train", "dqn-mario", *SMALL, "--eval-episodes", 0, "--no-tensorboard", "--seconds", 300, *words)
        command = [sys.executable, "-m", "hotloop", *map(str, call), "--out", str(self.path)]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=subprocess.DEVNULL)

    def __enter__(self) -> Self:
        self.wait_for(lambda: (self.path / "progress.csv").exists() and self.rows >= 3)
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def rows(self) -> int:
        return (self.path / "progress.csv").read_text().count("\n")

    @property
    def stderr(self) -> str:
        return self._log.read_text()

    def workers(self) -> list[psutil.Process]:
        children = psutil.Process(self.process.pid).children()
        return [each for each in children if "worker_main" in " ".join(each.cmdline())]

    def wait_for(self, what: Callable[[], bool]) -> None:
        deadline = now_ns() + round(PATIENCE_S * 1e9)
        while not what():
            assert self.process.poll() is None and now_ns() < deadline, self.stderr
            time.sleep(0.1)

    def end(self, signal_number: int | None = None) -> int:
        workers = self.workers() if signal_number else []
        if signal_number:
            self.process.send_signal(signal_number)
        code = self.process.wait(PATIENCE_S)
        assert not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in workers)
        return code


def test_a_killed_worker_is_replaced_and_ctrl_c_saves_a_checkpoint(tmp_path: Path) -> None:
    with Run(tmp_path, "--workers", 2) as run:
        victim = run.workers()[1]
        victim.kill()
        run.wait_for(lambda: "was replaced: it was killed by SIGKILL" in run.stderr)
        assert re.search(r"^dqn-mario: worker [01] was replaced: it was killed by SIGKILL$", run.stderr, re.MULTILINE)
        run.wait_for(lambda: len(run.workers()) == 2 and victim.pid not in {each.pid for each in run.workers()})
        assert run.end(signal.SIGINT) == 130
    stopped = result(run.path)
    assert stopped["stopped_by"] == "SIGINT" and Path(str(stopped["checkpoint"])).is_dir()
    head, *rows = (run.path / "progress.csv").read_text().splitlines()
    last = dict(zip(head.split(","), rows[-1].split(","), strict=True))
    assert (float(last["restarts"]), float(last["lost"])) == (1, 0)
    assert 0 <= float(last["gone"]) <= 15


@pytest.mark.slow
def test_a_checkpoint_is_saved_when_too_many_workers_have_failed(tmp_path: Path) -> None:
    with Run(tmp_path, "--workers", 1, "--restarts", 0) as run:
        run.workers()[0].kill()
        assert run.end() == 2
    last = run.stderr.splitlines()[-1]
    assert "worker 0: it was killed by SIGKILL; 0 workers were replaced already" in last and "--restarts" in last
    assert "Traceback" not in run.stderr
    (saved,) = (run.path / "checkpoints").glob("step-*")
    steps = int(saved.name.removeprefix("step-"))
    assert steps > 0
    on = tmp_path / "on"
    hotloop(
        "train", "dqn-mario", "--resume", run.path, "--restarts", 5, "--steps", steps + 40, "--eval-episodes", 0,
        "--no-tensorboard", "--out", on,
    )  # fmt: skip
    assert result(on)["env_steps"] >= steps + 40  # type: ignore[operator]


GREEDY = """
from hotloop.training.agents.subprocess_player import play_apart
from hotloop.training.pipelines.dqn_mario import Agent, Config

config = Config(workers=0, channels=(4, 4, 4), hidden=16)
play_apart("dqn-mario", config, Agent(config).learner.tensors(), 100_000, "1-1")
"""


def test_killing_the_learner_also_ends_its_evaluation_process(tmp_path: Path) -> None:
    learner = subprocess.Popen([sys.executable, "-c", GREEDY], env=os.environ | {"TMPDIR": str(tmp_path)})
    deadline = now_ns() + round(PATIENCE_S * 1e9)
    children: list[psutil.Process] = []
    while not children:
        assert learner.poll() is None and now_ns() < deadline
        children = psutil.Process(learner.pid).children()
        time.sleep(0.05)
    time.sleep(1.0)  # it is playing or still importing: either must end
    learner.kill()
    learner.wait()
    gone, alive = psutil.wait_procs(children, PATIENCE_S)
    for each in alive:
        each.kill()
    assert len(gone) == 1 and not alive
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_it_learns_to_get_further_than_random_play(tmp_path: Path) -> None:
    """Random play reaches x = 543 on average (docs/envs-mario.md); the run in docs/mario.md reached 1741."""
    run = tmp_path / "run"
    hotloop("train", "dqn-mario", "--steps", 60_000, "--eval-every", 0, "--eval-episodes", 20, "--out", run)
    assert result(run)["eval_score"] > 900  # type: ignore[operator]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rom", "nowhere.nes"], "cannot be read"),
        (["--level", "1-9"], "--level 1-9"),
        (["--size", "96"], "84 or 128"),
        (["--accumulate", "3"], "--accumulate is 3"),
        (["--buffer", "500"], "--buffer is 500"),
        (["--restarts", "-1"], "--restarts is -1"),
        (["--kernel", "numba"], "numba"),
        (["--precision", "float16"], "for CUDA"),
    ],
)
def test_invalid_options_are_reported_in_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = refusal(capsys, "train", "dqn-mario", *words, "--out", tmp_path / "run")
    assert message in line
    assert not (tmp_path / "run").exists()
