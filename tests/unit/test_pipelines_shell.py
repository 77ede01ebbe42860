"""The shell around a loop, tried with a trainee that learns nothing."""

from __future__ import annotations

import json
import os
import signal
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


def test_wandb_that_is_not_installed_is_said_before_anything_begins(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    try:
        import wandb  # noqa: F401
    except ImportError:
        with pytest.raises(HotloopError, match="wandb is not installed"):
            run(Trainee([]), options(tmp_path, steps=10, wandb=True))
        assert not (tmp_path / "run").exists()


def test_an_error_in_the_loop_closes_the_run_and_is_not_swallowed(tmp_path: Path) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(ZeroDivisionError):
        run(Trainee([]), options(tmp_path, steps=100, profile=True), {50: fail})
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "finished"
