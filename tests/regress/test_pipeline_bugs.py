"""Regression tests for fixed bugs of the pipelines."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.refusals import refusal
from tests.trainee import Trainee, options, run

from hotloop.cli import evaluate, play
from hotloop.errors import HotloopError
from hotloop.files import write_whole
from hotloop.training.agents import load
from hotloop.training.learn import DQN, PPO, DQNConfig, PPOConfig, PPORule, QRule, QShape
from hotloop.training.pipelines import dqn_snake, ppo_snake
from hotloop.training.run import checkpoint, configuration
from hotloop.training.run.checkpoint_saver import Saver
from hotloop.training.run.counts import Counts
from hotloop.training.run.saved_training import read_saved
from hotloop.training.worker_process import STOPPING

HALVES = """
from pathlib import Path
import numpy as np, torch
from hotloop.training.pipelines import sac_carracing
from hotloop.training.run.options import Options

class Seen(Exception):
    pass

def look(run, agent):
    subnormal = torch.from_numpy(np.full(1 << 22, 100, np.int32).view(np.float32))
    left = (subnormal * 1.5).view(torch.int32) != 0
    print(left[: 1 << 21].sum().item(), left[1 << 21 :].sum().item())
    raise Seen

sac_carracing.prepare = look
try:
    sac_carracing.train(sac_carracing.Config(threads=2), Options(out=Path("OUT")))
except Seen:
    pass
"""


def test_torchs_worker_threads_flush_subnormal_numbers(tmp_path):
    """They were started when the agent was created, before flushing of subnormal numbers was enabled.

    Adam became slower and slower in the half of the weights that they update, as `hotloop explain` reported.
    """
    code = HALVES.replace("OUT", str(tmp_path / "run"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["0", "0"], done.stdout + done.stderr


@pytest.mark.parametrize("command", [evaluate, play])
def test_agents_play_with_one_torch_thread(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch's default of two, an evaluation during training took three times as long, mostly waiting."""
    seen = []

    def load_agent(*_: object) -> None:
        seen.append(torch.get_num_threads())
        raise HotloopError("nothing to load")

    monkeypatch.setattr(load, "load_agent", load_agent)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(HotloopError, match="nothing to load"):
            command.run(parser.parse_args(["nowhere"]))
        assert (seen, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _sparse(path: Path) -> None:
    with path.open("w") as file:
        file.write("env_steps,loss\n")
        file.truncate(2 << 30)


UNFIT_CURVES = {
    "a pipe": (_fifo, "it is not a regular file"),
    "a link": (_zeros, "it is a symbolic link"),
    "a folder": (Path.mkdir, "it is not a regular file"),
    "2 GB": (_sparse, "it is larger than 64 MiB"),
    "no text": (lambda path: path.write_bytes(b"\xff\xfe\x00,\n" * 9), "can't decode"),
    "escapes": (lambda path: path.write_text("env_steps,\x1b[31m\n5,1\n"), "a name that no curve has"),
    "a formula": (lambda path: path.write_text("env_steps,loss\n5,=1+1\n6,1\n"), "line 2 is not a row of 2 numbers"),
    "a long cell": (lambda path: path.write_text("env_steps,loss\n5," + "9" * 200_000 + "\n"), "field larger"),
    "no columns": (lambda path: path.write_text("\n"), "does not name the columns"),
}


@pytest.mark.parametrize("kind", UNFIT_CURVES)
def test_an_unreadable_curve_of_a_resumed_run_gives_one_warning(kind: str, tmp_path: Path, capsys) -> None:
    """A pipe in its place blocked forever, and a link to /dev/zero was read until memory was full."""
    run(Trainee([1.0]), options(tmp_path, steps=20))
    curve = tmp_path / "run" / "progress.csv"
    curve.unlink()
    make, reason = UNFIT_CURVES[kind]
    make(curve)
    more = options(tmp_path, steps=40, out=tmp_path / "more", resume=tmp_path / "run")
    assert run(Trainee([1.0]), more).exit_code == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert f"cannot continue the curve in {curve} (" in line
    assert reason in line
    assert (tmp_path / "more" / "progress.csv").read_text().startswith("env_steps,")


def test_the_curve_of_a_resumed_run_may_be_missing_or_truncated(tmp_path: Path, capsys) -> None:
    run(Trainee([1.0]), options(tmp_path, steps=20))
    curve = tmp_path / "run" / "progress.csv"
    with curve.open("a") as file:
        file.write("21,0.5")
    run(Trainee([1.0]), options(tmp_path, steps=40, out=tmp_path / "more", resume=tmp_path / "run"))
    assert {line.split(",")[0] for line in (tmp_path / "more" / "progress.csv").read_text().split()[1:]} == {"20", "40"}
    curve.unlink()
    run(Trainee([1.0]), options(tmp_path, steps=40, out=tmp_path / "less", resume=tmp_path / "run"))
    assert capsys.readouterr().err == ""


def test_a_best_link_to_itself_is_reported_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`Path.resolve` raises a RuntimeError for it, which was not handled."""
    run(Trainee([1.0]), options(tmp_path, steps=20))
    folder = tmp_path / "run" / "checkpoints"
    (folder / "best").unlink()
    (folder / "best").symlink_to("best")
    for source in (tmp_path / "run", folder / "step-000000000020"):
        more = options(tmp_path, steps=40, out=tmp_path / "more", resume=source)
        with pytest.raises(HotloopError, match=r"best cannot be followed \(Too many levels .*: remove this link"):
            run(Trainee([1.0]), more)
        assert not (tmp_path / "more").exists()
    # If the run's own link breaks during training, all checkpoints are kept, with a message.
    saver = Saver(tmp_path / "run", 1, warn=print)
    assert saver.save(40, {"learner": {"w": np.zeros(1)}}, {})
    assert "cannot remove old checkpoints" in capsys.readouterr().out
    assert len(list(folder.glob("step-*"))) == 2


def test_writing_to_a_link_to_itself_raises_oserror(tmp_path: Path) -> None:
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop.name)
    with pytest.raises(OSError, match="Too many levels"):
        write_whole(loop, b"x")


@pytest.mark.parametrize("device", ["meta", "hpu", "privateuseone", "fpga", "nonsense", "cuda:99"])
def test_an_unusable_device_is_reported_in_one_short_line(device: str, tmp_path: Path, capsys) -> None:
    """Some raised unhandled errors, one passed the check but holds no data, and some printed a page of text."""
    calls = (
        ["train", "dqn-snake", "--envs", "8", "--steps", "64", "--out", tmp_path / "run", "--device", device],
        ["evaluate", tmp_path, "--device", device],
        ["play", tmp_path, "--device", device],
    )
    for words in calls:
        (line,) = refusal(capsys, *words)
        assert line.startswith(f"hotloop: --device {device} cannot be used (")
        assert line.endswith("): give cpu")
        assert len(line) < 200
    assert not (tmp_path / "run").exists()


LATE_SIGNALS = """
import atexit, os, signal, sys
from hotloop.cli import main, train
from hotloop.training.run.training_run import TrainingRun

def send(number):
    os.kill(os.getpid(), number)

def after_step(self, real=TrainingRun.after_step):
    real(self)
    if self.going():
        send(FIRST)

def print_result(*args, real=train._print_result):
    send(signal.SIGHUP)
    send(signal.SIGINT)
    send(signal.SIGTERM)
    return real(*args)

TrainingRun.after_step, train._print_result = after_step, print_result
atexit.register(send, signal.SIGTERM)
atexit.register(send, signal.SIGINT)
sys.argv = ["hotloop", *WORDS]
sys.exit(main.main())
"""


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_late_signals_do_not_change_the_exit_code(first: signal.Signals, tmp_path: Path) -> None:
    """Once the handlers were restored, another signal ended the process with its own exit code."""
    words = ["train", "dqn-snake", "--kernel", "numba", "--envs", "8", "--seconds", "1000", "--eval-episodes", "0"]
    words += ["--no-tensorboard", "--no-profile", "--quiet", "--json", "--out", str(tmp_path / "run")]
    code = LATE_SIGNALS.replace("FIRST", str(int(first))).replace("WORDS", repr(words))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (128 + first, "")
    assert json.loads(done.stdout)["stopped_by"] == first.name


def test_signal_handlers_are_restored_after_a_signal(tmp_path: Path) -> None:
    before = [signal.getsignal(each) for each in STOPPING]
    result = run(Trainee([]), options(tmp_path, steps=1000), {50: lambda: os.kill(os.getpid(), signal.SIGTERM)})
    assert result.exit_code == 143
    assert [signal.getsignal(each) for each in STOPPING] == before


class Diverging(Trainee):
    """Its weights become non-finite at a given step."""

    def __init__(self, scores: list[float], from_step: int, value: float) -> None:
        super().__init__(scores)
        self._from_step, self._value = from_step, value

    def state(self) -> Any:
        (groups, meta) = super().state()
        good = self.counts.env_steps < self._from_step
        return groups | {"learner": {"w": np.array([1.0, 1.0 if good else self._value, 1.0])}}, meta


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_diverging_training_keeps_its_good_checkpoints(value: float, tmp_path: Path, capsys) -> None:
    """Each checkpoint was replaced by an unreadable one, with exit code 0."""
    every = options(tmp_path, steps=100, eval_every=30, checkpoint_every=10, keep=2)
    result = run(Diverging([1.0, 5.0, np.nan, 9.0], 50, value), every)
    assert (result.exit_code, result.checkpoint) == (2, str(tmp_path / "run" / "checkpoints" / "step-000000000040"))
    names = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert names == {"best", "step-000000000030", "step-000000000040"}
    assert (tmp_path / "run" / "checkpoints" / "best").resolve().name == "step-000000000030"
    (line,) = capsys.readouterr().err.splitlines()
    assert f"weights are not finite at 50 steps ({value} in learner w), and are not saved: lower the learning" in line
    assert line.endswith(f"the last good checkpoint is kept, {result.checkpoint}")


def test_a_nan_score_is_never_the_best(tmp_path: Path) -> None:
    result = run(Trainee([np.nan, 2.0]), options(tmp_path, steps=40, eval_every=30))
    assert (result.exit_code, result.best_eval_score) == (0, 2.0)


COUNTS = {
    "all 0": {"env_steps": 0, "frames": 0, "updates": 0, "episodes": 0},
    "all large": dict.fromkeys(("env_steps", "frames", "updates", "episodes"), 1 << 53),
    "few frames": {"env_steps": 20, "frames": 1, "updates": 8, "episodes": 2},
    "many episodes": {"env_steps": 20, "frames": 20, "updates": 8, "episodes": 21},
    "other updates": {"env_steps": 20, "frames": 20, "updates": 9, "episodes": 2},
    "other episodes": {"env_steps": 20, "frames": 20, "updates": 8, "episodes": 3},
}


@pytest.mark.parametrize("kind", [None, *COUNTS])
def test_inconsistent_counts_are_rejected(kind: str | None, tmp_path: Path) -> None:
    """A checkpoint with counts of 0 or 2**53 was resumed from that step."""
    counts = COUNTS[kind] if kind else {"env_steps": 20, "frames": 20, "updates": 8, "episodes": 2}
    path = checkpoint.step_path(tmp_path, 20)
    groups = {"learner": {"updates": np.array(8)}, "episodes": {"ended": np.array(2)}}
    checkpoint.write(path, groups, {"pipeline": "fake", "config": {}, "counts": counts, "best": None})
    (tmp_path / "checkpoints" / "best").symlink_to(path.name)
    for name in ("best", path.name):
        if kind is None:
            assert read_saved(tmp_path / "checkpoints" / name).counts == Counts(20, 20, 8, 2)
            continue
        with pytest.raises(HotloopError, match=r"the saved state is impossible: .*; use another checkpoint"):
            read_saved(tmp_path / "checkpoints" / name)


@pytest.mark.parametrize("value", [-1e308, 1.7e308, float("inf"), float("nan")])
def test_a_setting_that_does_not_fit_in_float32_is_rejected(value: float) -> None:
    """A reward of 1e308 overflowed, and NumPy printed a warning with our source lines."""
    with pytest.raises(HotloopError, match=r"reward.food"):
        configuration.with_settings(dqn_snake.Config(), {"reward_food": value}, "a checkpoint")
    with pytest.raises(HotloopError, match=r"--reward-food is .*: give a finite number, from"):
        configuration.check_finite(dqn_snake.Config(reward_food=value))


def test_the_numba_kernels_are_offered_only_for_the_losses_that_they_compute() -> None:
    """With a user's own loss, `choose_kernel` could pick a numba kernel, which ignored it."""
    dqn = DQN(DQNConfig(QShape((4,), 3, (8,))), QRule(lambda *_: (torch.zeros(()), torch.zeros(1)), lambda *_: None))
    ppo = PPO(PPOConfig((4,), 3), PPORule(ppo_snake.ppo_loss))
    assert dqn.supported_kernels() == ["torch", "torch-fused", "compile"]
    assert ppo.supported_kernels() == ["torch"]
    for learner in (dqn, ppo):
        with pytest.raises(HotloopError, match=r"the 'numba' kernel cannot run this loss: choose one of torch"):
            learner.use("numba")
