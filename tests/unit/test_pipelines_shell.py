"""The shell around a loop, tried with a trainee that learns nothing."""

from __future__ import annotations

import json
import os
import signal
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotloop.errors import HotloopError
from hotloop.learn import checkpoint
from hotloop.pipelines.counting import Counts, Episodes
from hotloop.pipelines.options import Options
from hotloop.pipelines.result import Result
from hotloop.pipelines.shell import Shell


@dataclass(frozen=True)
class Config:
    seed: int = 0
    kernel: str = "plain"


class Trainee:
    """Takes 10 environment steps and ends an episode in each turn; its greedy score is scripted."""

    def __init__(self, scores: list[float]) -> None:
        self.config = Config()
        self.counts = Counts()
        self.episodes = Episodes(1)
        self.evaluated_at: list[int] = []
        self._scores = iter(scores)

    def turn(self) -> None:
        self.episodes.step(np.array([2.0]), np.array([True]), np.array([3]))
        self.counts.add(env_steps=10, updates=4, episodes=1)

    def scalars(self) -> dict[str, float | None]:
        return {"loss": 0.5}

    def evaluate(self, episodes: int) -> dict[str, float | None]:
        self.evaluated_at.append(self.counts.env_steps)
        score = next(self._scores)
        return {"eval_return": 10 * score, "eval_score": score, "success_rate": 0.0}

    def state(self) -> tuple[checkpoint.Groups, dict[str, Any]]:
        return {"learner": {"w": np.array([self.counts.env_steps])}}, {"mine": 1}


def run(trainee: Trainee, options: Options, at_step: dict[int, Any] | None = None) -> Result:
    with Shell("fake", trainee.config, options) as shell:
        shell.begin(trainee)
        while shell.going():
            trainee.turn()
            shell.after_step()
            if at_step and trainee.counts.env_steps in at_step:
                at_step[trainee.counts.env_steps]()
        return shell.finish()


def options(tmp_path: Path, **more: Any) -> Options:
    return Options(**{"out": tmp_path / "run", "profile": False, "tensorboard": False, "quiet": True, **more})


@pytest.mark.parametrize(
    ("limit", "env_steps"),
    [({"steps": 25}, 30), ({"episodes": 4}, 40), ({"steps": 1000, "episodes": 2}, 20)],
)
def test_the_first_limit_that_is_reached_ends_the_run(tmp_path: Path, limit: dict[str, int], env_steps: int) -> None:
    result = run(Trainee([1.0]), options(tmp_path, **limit))
    assert (result.env_steps, result.updates, result.episodes) == (env_steps, env_steps * 4 // 10, env_steps // 10)
    assert result.stopped_by in limit
    assert (result.return_mean, result.score_last100, result.steps_per_episode) == (2.0, 3.0, 1.0)
    assert result.exit_code == 0


def test_evaluations_come_on_time_and_the_best_checkpoint_is_kept(tmp_path: Path) -> None:
    trainee = Trainee([1.0, 7.0, 5.0, 6.0])
    result = run(trainee, options(tmp_path, steps=100, eval_every=30, checkpoint_every=20, keep=2))
    assert trainee.evaluated_at == [30, 60, 90, 100]
    assert (result.eval_score, result.eval_return, result.best_eval_score) == (6.0, 60.0, 7.0)
    folder = tmp_path / "run" / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == [
        "best", "step-000000000060", "step-000000000080", "step-000000000100"
    ]  # fmt: skip
    best = checkpoint.read(checkpoint.find(tmp_path / "run", best=True))
    assert best.groups["learner"]["w"].tolist() == [60]
    assert best.meta["counts"]["env_steps"] == 60


def test_a_best_that_is_found_after_the_checkpoint_of_its_step_is_in_it(tmp_path: Path) -> None:
    # At 100 a checkpoint is due and the run ends: the evaluation that finds the best comes after it was written.
    run(Trainee([2.0, 7.0]), options(tmp_path, steps=100, eval_every=60, checkpoint_every=100))
    for best in (False, True):
        found = checkpoint.read(checkpoint.find(tmp_path / "run", best=best))
        assert (found.meta["best"], found.meta["counts"]["env_steps"]) == (7.0, 100)
    more = options(tmp_path, steps=110, out=tmp_path / "more", resume=tmp_path / "run")
    assert run(Trainee([6.0]), more).best_eval_score == 7.0


def test_no_evaluation_and_no_checkpoint_but_the_last_where_none_is_asked_for(tmp_path: Path) -> None:
    trainee = Trainee([])
    result = run(trainee, options(tmp_path, steps=100, eval_episodes=0, checkpoint_every=0))
    assert (trainee.evaluated_at, result.eval_score, result.success_rate) == ([], None, None)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-000000000100"]


def test_a_signal_ends_the_run_after_its_step_with_everything_saved(tmp_path: Path) -> None:
    trainee = Trainee([])
    stop = {50: lambda: os.kill(os.getpid(), signal.SIGTERM)}
    result = run(trainee, options(tmp_path, steps=1000), stop)
    assert (result.env_steps, result.stopped_by, result.exit_code) == (50, "SIGTERM", 143)
    assert checkpoint.read(Path(result.checkpoint)).groups["learner"]["w"].tolist() == [50]


def test_the_result_is_written_and_is_the_contract(tmp_path: Path) -> None:
    result = run(Trainee([1.0]), options(tmp_path, steps=10))
    told = json.loads((tmp_path / "run" / "result.json").read_text())
    assert told == result.as_dict()
    promised = (
        "schema pipeline env_steps frames updates episodes steps_per_episode seconds warmup_seconds env_steps_per_s "
        "updates_per_s return_mean return_last100 eval_return success_rate peak_rss_bytes run_dir checkpoint"
    )
    assert set(promised.split()) <= set(told)
    assert told["peak_rss_bytes"] > 10_000_000


def test_a_directory_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").touch()
    for profile in (False, True):
        with pytest.raises(HotloopError, match="is not an empty directory: choose another with --out"):
            run(Trainee([]), options(tmp_path, steps=10, profile=profile))
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_a_directory_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(HotloopError, match=r"cannot make .*: choose another with --out"):
        run(Trainee([]), options(tmp_path, steps=10, out=tmp_path / "run" / "below"))


def test_a_mistake_in_the_call_leaves_no_run_behind(tmp_path: Path) -> None:
    with pytest.raises(HotloopError, match="board"), Shell("test", Config(), options(tmp_path, profile=True)):
        raise HotloopError("board is 2")
    assert not (tmp_path / "run").exists()


def test_what_was_learnt_is_saved_when_a_run_cannot_go_on(tmp_path: Path) -> None:
    def give_up() -> None:
        raise HotloopError("all workers have left")

    with pytest.raises(HotloopError, match="all workers have left"):
        run(Trainee([]), options(tmp_path, steps=1000), {50: give_up})
    assert checkpoint.read(checkpoint.find(tmp_path / "run")).groups["learner"]["w"].tolist() == [50]


def test_a_mistake_in_the_call_leaves_an_empty_directory_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o750)
    with pytest.raises(HotloopError, match="board"), Shell("test", Config(), options(tmp_path, profile=True)):
        raise HotloopError("board is 2")
    assert list((tmp_path / "run").iterdir()) == []
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o750


def test_wandb_that_is_not_installed_is_said_before_anything_begins(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    try:
        import wandb  # noqa: F401
    except ImportError:
        with pytest.raises(HotloopError, match="wandb is not installed"):
            run(Trainee([]), options(tmp_path, steps=10, wandb=True))
        assert not (tmp_path / "run").exists()


def test_wandb_gets_settings_and_numbers_and_is_told_of_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, dict[str, Any]]] = []

    class Run:
        def log(self, numbers: dict[str, float], step: int) -> None:
            told.append(("log", numbers | {"step": step}))

        def finish(self) -> None:
            told.append(("finish", {}))

    stand_in = types.ModuleType("wandb")
    stand_in.init = lambda **settings: told.append(("init", settings)) or Run()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    run(Trainee([1.0]), options(tmp_path, steps=20, wandb=True))
    settings = {"project": "hotloop", "config": {"seed": 0, "kernel": "plain"}}
    assert told[0] == ("init", {"dir": str(tmp_path / "run"), "name": "run", **settings})
    assert told[-1] == ("finish", {})
    (what, numbers) = told[-2]
    assert (what, numbers["step"], numbers["episodes"]) == ("log", 20, 2)
    assert (numbers["loss"], numbers["score_last100"], numbers["eval_score"]) == (0.5, 3.0, 1.0)


def test_tensorboard_that_is_not_installed_is_said_before_anything_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(HotloopError, match=r"tensorboard is not installed: .*--no-tensorboard"):
        run(Trainee([]), options(tmp_path, steps=10, tensorboard=True))
    assert not (tmp_path / "run").exists()


def from_ctrl_c() -> SystemError:
    error = SystemError("a compiled function returned a result with an exception set")
    error.__cause__ = KeyboardInterrupt()
    return error


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [(ZeroDivisionError, "failed", 1), (KeyboardInterrupt, "interrupted", 130), (from_ctrl_c, "interrupted", 130)],
)
def test_an_error_in_the_loop_closes_the_run_and_is_not_swallowed(
    error: Any, state: str, code: int, tmp_path: Path
) -> None:
    def fail() -> None:
        raise error()

    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises((ZeroDivisionError, KeyboardInterrupt, SystemError)):
        run(Trainee([]), options(tmp_path, steps=100, profile=True), {50: fail})
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (manifest["state"], manifest["exit_code"]) == (state, code)


@pytest.mark.parametrize(("signals", "state", "code"), [((), "finished", 0), ((signal.SIGTERM,), "interrupted", 143)])
def test_a_run_that_ends_well_or_by_a_signal_says_so(tmp_path: Path, signals: Any, state: str, code: int) -> None:
    stop = {50: lambda: [os.kill(os.getpid(), each) for each in signals]}
    run(Trainee([1.0]), options(tmp_path, steps=100, profile=True), stop)
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (manifest["state"], manifest["exit_code"]) == (state, code)
