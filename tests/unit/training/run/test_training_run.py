"""What surrounds a training loop, tested with a trainee that learns nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import sys
import types
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.disks import full_disk
from tests.trainee import Config, Trainee, options, recorder, run

from hotloop.errors import HotloopError, Interrupted
from hotloop.training.run import checkpoint
from hotloop.training.run.curves import Scalars
from hotloop.training.run.training_run import TrainingRun


@pytest.mark.parametrize(
    ("limit", "env_steps"),
    [({"steps": 25}, 30), ({"episodes": 4}, 40), ({"steps": 1000, "episodes": 2}, 20)],
)
def test_the_first_limit_that_is_reached_ends_the_run(tmp_path: Path, limit: dict[str, int], env_steps: int) -> None:
    result = run(Trainee([1.0]), options(tmp_path, **limit))
    assert (result.env_steps, result.updates, result.episodes) == (env_steps, env_steps * 4 // 10, env_steps // 10)
    assert result.stopped_by in limit
    assert (result.return_mean, result.score_last100, result.steps_per_episode) == (2.0, 3.0, 10.0)
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
    assert checkpoint.read(Path(str(result.checkpoint))).groups["learner"]["w"].tolist() == [50]


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


def test_only_the_owner_may_enter_a_run_directory(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        run(Trainee([1.0]), options(tmp_path, steps=10, out=tmp_path / "runs" / "a"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "runs" / "a").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "runs").stat().st_mode) == 0o755, "what is above follows the umask"


def test_a_directory_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").touch()
    for recording in (None, recorder()):
        with pytest.raises(HotloopError, match="is not an empty directory: choose another with --out"):
            run(Trainee([]), options(tmp_path, steps=10), recording=recording)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_a_directory_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(HotloopError, match=r"cannot make .*: choose another with --out"):
        run(Trainee([]), options(tmp_path, steps=10, out=tmp_path / "run" / "below"))


def test_a_mistake_in_the_call_leaves_no_run_behind(tmp_path: Path) -> None:
    with pytest.raises(HotloopError, match="board"), TrainingRun("test", Config(), options(tmp_path), recorder()):
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
    with pytest.raises(HotloopError, match="board"), TrainingRun("test", Config(), options(tmp_path), recorder()):
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
        run(Trainee([]), options(tmp_path, steps=100), {50: fail}, recorder())
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (manifest["state"], manifest["exit_code"]) == (state, code)


@pytest.mark.parametrize(("signals", "state", "code"), [((), "finished", 0), ((signal.SIGTERM,), "interrupted", 143)])
def test_a_run_that_ends_well_or_by_a_signal_says_so(tmp_path: Path, signals: Any, state: str, code: int) -> None:
    stop = {50: lambda: [os.kill(os.getpid(), each) for each in signals]}
    run(Trainee([1.0]), options(tmp_path, steps=100), stop, recorder())
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (manifest["state"], manifest["exit_code"]) == (state, code)


def names_in(run: Path) -> list[str]:
    return sorted(each.name for each in (run / "checkpoints").iterdir())


@pytest.mark.parametrize("tensorboard", [False, True])
def test_a_full_disk_is_a_warning_and_the_next_checkpoint_is_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tensorboard: bool
) -> None:
    disk = ExitStack()
    at_step = {10: lambda: disk.enter_context(full_disk()), 30: disk.close}
    more = {"steps": 60, "checkpoint_every": 20, "eval_episodes": 0, "tensorboard": tensorboard}
    result = run(Trainee([]), options(tmp_path, **more), at_step)
    said = capsys.readouterr().err.splitlines()
    assert len([line for line in said if "cannot write checkpoint" in line and "File too large" in line]) == 1
    assert all(line.startswith("hotloop: warning: ") for line in said)
    assert names_in(tmp_path / "run") == ["step-000000000040", "step-000000000060"]
    assert (result.exit_code, result.env_steps) == (0, 60)


def test_a_last_checkpoint_that_cannot_be_written_is_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as disk:
        at_step = {50: lambda: disk.enter_context(full_disk())}
        result = run(Trainee([]), options(tmp_path, steps=60, checkpoint_every=40, eval_episodes=0), at_step)
    said = capsys.readouterr().err
    assert "step-000000000060 (File too large): the training since the last one is lost, and the newest is" in said
    assert "cannot write" in said and "result.json" in said
    assert (result.exit_code, result.env_steps) == (2, 60)
    assert result.checkpoint is not None and result.checkpoint.endswith("step-000000000040")
    assert names_in(tmp_path / "run") == ["step-000000000040"]
    assert not list((tmp_path / "run").glob(".*"))


def test_a_full_disk_at_the_start_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    with full_disk(), pytest.raises(HotloopError, match=r"cannot write to .*File too large"):
        run(Trainee([]), options(tmp_path, steps=10))
    assert not (tmp_path / "run").exists()


def test_a_best_agent_that_could_not_be_saved_is_not_the_best(tmp_path: Path) -> None:
    disk = ExitStack()
    at_step = {10: lambda: disk.enter_context(full_disk()), 20: disk.close}
    result = run(Trainee([9.0, 3.0, 2.0, 2.0]), options(tmp_path, steps=60, eval_every=20), at_step)
    best = checkpoint.read(checkpoint.find(tmp_path / "run", best=True))
    assert (best.meta["counts"]["env_steps"], best.meta["best"], result.best_eval_score) == (40, 3.0, 3.0)


def test_the_curve_has_no_half_row_after_a_full_disk(tmp_path: Path) -> None:
    warned: list[str] = []
    scalars = Scalars(tmp_path, tensorboard=True, wandb=None, warn=warned.append)
    scalars.write(1, {"loss": 0.5})
    size = (tmp_path / "progress.csv").stat().st_size
    with full_disk(size + 3):
        for step in (2, 3):
            scalars.write(step, {"loss": 0.25})
        scalars.write(4, {"loss": 0.25, "more": 1})
    scalars.write(5, {"loss": 0.125})
    scalars.close()
    assert (tmp_path / "progress.csv").read_text().split() == ["env_steps,loss", "1,0.5", "5,0.125"]
    assert [each.partition(" (")[0] for each in warned] == [
        "cannot write progress.csv",
        "cannot write the curves for TensorBoard",
    ]
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert [(each.step, each.value) for each in found.Scalars("loss")] == [(1, 0.5), (5, 0.125)]


def test_a_run_directory_that_is_removed_is_made_again(tmp_path: Path) -> None:
    at_step = {30: lambda: shutil.rmtree(tmp_path / "run")}
    result = run(Trainee([]), options(tmp_path, steps=60, checkpoint_every=20, eval_episodes=0), at_step)
    assert result.exit_code == 0
    assert names_in(tmp_path / "run") == ["step-000000000040", "step-000000000060"]


def test_a_place_that_is_no_directory_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(
        Trainee([1.0]), options(tmp_path, steps=30), {10: lambda: (tmp_path / "run" / "checkpoints").write_text("")}
    )
    assert (result.exit_code, result.checkpoint, result.env_steps) == (2, None, 30)
    assert capsys.readouterr().err.count("cannot write checkpoint") == 2, "the best and the last"


def test_a_lost_terminal_does_not_end_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = open("/dev/full", "w", buffering=1)  # noqa: SIM115
    monkeypatch.setattr(sys, "stderr", full)
    result = run(Trainee([1.0] * 4), options(tmp_path, steps=30, quiet=False, eval_every=10))
    monkeypatch.undo()
    with suppress(OSError):
        full.close()
    assert (result.exit_code, result.env_steps) == (0, 30)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_second_signal_while_it_saves_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    write = checkpoint.write

    def interrupted(*args: Any) -> None:
        os.kill(os.getpid(), number)
        write(*args)

    monkeypatch.setattr(checkpoint, "write", interrupted)
    stop = {50: lambda: os.kill(os.getpid(), number)}
    result = run(Trainee([]), options(tmp_path, steps=1000), stop, recorder())
    assert (result.env_steps, result.exit_code) == (50, code)
    assert checkpoint.read(Path(str(result.checkpoint))).groups["learner"]["w"].tolist() == [50]
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (manifest["state"], manifest["exit_code"]) == ("interrupted", code)


def test_a_third_signal_ends_it_at_once_with_the_code_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stuck(*args: Any) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        pytest.fail("it went on")

    monkeypatch.setattr(checkpoint, "write", stuck)
    with pytest.raises(Interrupted) as caught:
        run(Trainee([]), options(tmp_path, steps=1000), {50: lambda: os.kill(os.getpid(), signal.SIGTERM)})
    assert caught.value.exit_code == 143


def test_a_hangup_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        hang_up = {50: lambda: os.kill(os.getpid(), signal.SIGHUP)}
        result = run(Trainee([]), options(tmp_path, steps=100, eval_episodes=0), hang_up)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (result.env_steps, result.exit_code) == (100, 0)


def test_a_resumed_run_can_be_resumed_before_its_first_own_checkpoint(tmp_path: Path) -> None:
    # The best is at 30, the last at 100: a resumed run that is killed early must go on from 100.
    run(Trainee([7.0, 5.0, 5.0, 5.0]), options(tmp_path, steps=100, eval_every=30))
    more = options(tmp_path, steps=200, out=tmp_path / "more", resume=tmp_path / "run")
    run_again = TrainingRun("fake", Config(), more)
    with pytest.raises(KeyboardInterrupt), run_again:
        run_again.begin(Trainee([]))
        raise KeyboardInterrupt
    last, best = (checkpoint.read(checkpoint.find(tmp_path / "more", best=best)) for best in (False, True))
    assert (last.meta["counts"]["env_steps"], best.meta["counts"]["env_steps"]) == (100, 30)
    shutil.rmtree(tmp_path / "run")
    again = options(tmp_path, steps=110, eval_episodes=0, out=tmp_path / "again", resume=tmp_path / "more")
    assert run(Trainee([]), again).best_eval_score == 7.0


def test_settings_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Odd(Config):
        clip: float = float("inf")

    with pytest.raises(HotloopError, match="--clip is inf: give a finite number"):
        TrainingRun("fake", Odd(), options(tmp_path))


def test_an_error_that_follows_from_weights_that_are_not_finite_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainee = Trainee([])
    trainee.state = lambda: ({"learner": {"w": np.array([np.nan])}}, {})  # type: ignore[method-assign]

    def fail() -> None:
        raise HotloopError("action of car 0 is nan")

    with pytest.raises(HotloopError, match=r"weights are not finite at 50 steps .*: lower the learning rate"):
        run(trainee, options(tmp_path, steps=1000), {50: fail})
    assert capsys.readouterr().err == ""
