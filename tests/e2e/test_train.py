"""`hotloop train`, `play` and `evaluate` as a user calls them, and their promises of bit-identical results."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.disks import small_disk
from tests.refusals import refusal
from tests.trainee import recorder

from hotloop.cli.recording import TrainingRecording
from hotloop.cli.train import parse
from hotloop.errors import HotloopError
from hotloop.training.agents.load import load_agent
from hotloop.training.learn import Choice
from hotloop.training.pipelines import dqn_snake, ppo_snake
from hotloop.training.run import checkpoint
from hotloop.training.run.options import Options
from hotloop.training.tasks import snake

DQN = dqn_snake.Config(
    envs=16, board=6, features="basic", hidden=(32, 32), buffer=2000, learning_starts=500, updates_per_step=2,
    batch=32, target_every=50, kernel="numba",
)  # fmt: skip
PPO = ppo_snake.Config(envs=16, board=6, features="basic", hidden=(32, 32), epochs=2, kernel="numba")
VARIANTS = {
    "dqn": (dqn_snake, DQN),
    "dqn-torch-all": (
        dqn_snake,
        replace(DQN, kernel="torch", dueling=True, noisy=True, prioritised=True, n_step=3, categorical=True,
                updates_per_step=1),
    ),
    "dqn-grid": (dqn_snake, replace(DQN, kernel="torch", features="grid", network="cnn", updates_per_step=1)),
    "ppo": (ppo_snake, PPO),
    "ppo-torch": (ppo_snake, replace(PPO, kernel="torch")),
}  # fmt: skip


def train(variant: str, out: Path, recording: TrainingRecording | None = None, **more: Any) -> Any:
    module, config = VARIANTS[variant]
    settings = {"tensorboard": False, "quiet": True, "eval_episodes": 4, "eval_every": 700, **more}
    return module.train(config, Options(out=out, **settings), recording)


def everything(path: str | Path) -> dict[str, np.ndarray]:
    """All arrays of a checkpoint, its random generators and its counts."""
    found = checkpoint.read(Path(path))
    arrays = {f"{group}.{name}": array for group, each in found.groups.items() for name, array in each.items()}
    arrays["rng"] = np.frombuffer(json.dumps([found.meta["rng"], found.meta["counts"]]).encode(), np.uint8)
    return arrays


def assert_same(ours: str | Path, theirs: str | Path) -> None:
    a, b = everything(ours), everything(theirs)
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].tobytes() == b[name].tobytes(), name


def hotloop(*words: object, **more: Any) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-m", "hotloop.cli.main", *map(str, words)]
    return subprocess.run(call, capture_output=True, text=True, **more)


def flags(config: dqn_snake.Config) -> list[str]:
    words = []
    for name in ("envs", "board", "features", "buffer", "learning_starts", "updates_per_step", "batch", "kernel"):
        words += [f"--{name.replace('_', '-')}", str(getattr(config, name))]
    return [*words, "--hidden", "32", "32", "--target-every", "50", "--no-tensorboard", "--eval-episodes", "4"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_resumed_run_is_bit_identical_to_an_uninterrupted_one(variant: str, tmp_path: Path) -> None:
    whole = train(variant, tmp_path / "whole", steps=2048)
    again = train(variant, tmp_path / "again", recorder(), steps=2048, eval_every=0)
    assert_same(whole.checkpoint, again.checkpoint)
    train(variant, tmp_path / "half", steps=1024)
    rest = train(variant, tmp_path / "rest", steps=2048, resume=tmp_path / "half")
    assert_same(whole.checkpoint, rest.checkpoint)
    assert rest.updates == whole.updates > 0


def test_a_different_seed_gives_a_different_run(tmp_path: Path) -> None:
    ours = train("dqn", tmp_path / "a", steps=1024)
    theirs = dqn_snake.train(
        replace(DQN, seed=1), Options(out=tmp_path / "b", steps=1024, tensorboard=False, quiet=True)
    )
    ours, theirs = everything(ours.checkpoint), everything(theirs.checkpoint)
    assert all(ours[name].tobytes() != theirs[name].tobytes() for name in ("env.obs", "rng", "episodes.return"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_run_stopped_by_a_signal_resumes_bit_identically(number: signal.Signals, code: int, tmp_path: Path) -> None:
    stopped = tmp_path / "a cüt"
    words = ["train", "dqn-snake", *flags(DQN), "--out", str(stopped), "--seconds", "60"]
    process = subprocess.Popen(
        [sys.executable, "-m", "hotloop.cli.main", *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "steps/s" in line:
            break
    process.send_signal(number)
    out, _ = process.communicate()
    assert process.returncode == code, out
    assert f"hotloop train dqn-snake --resume {shlex.quote(str(stopped))}" in out
    cut = checkpoint.read(checkpoint.find(stopped)).meta["counts"]["env_steps"]
    assert cut > 0
    assert json.loads((stopped / "run.json").read_text(encoding="utf-8"))["state"] == "interrupted"
    end = cut + 512
    rest = hotloop("train", "dqn-snake", "--resume", stopped, "--out", tmp_path / "rest", "--steps", end, "--json")
    assert rest.returncode == 0, rest.stderr
    whole = train("dqn", tmp_path / "whole", steps=end)
    assert_same(json.loads(rest.stdout)["checkpoint"], whole.checkpoint)


@pytest.mark.parametrize(("module", "config"), [(dqn_snake, DQN), (ppo_snake, PPO)])
def test_the_chosen_kernel_is_saved_and_used_when_resuming(
    module: Any, config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates_seen: list[Any] = []

    def choose(learner: Any, updates_per_call: int, candidates: Any = None) -> Choice:
        candidates_seen.append(candidates)
        return Choice("numba", {})

    def choose_another(learner: Any, updates_per_call: int, candidates: Any = ("torch",)) -> Choice:
        return Choice(candidates[0], {})

    def begin(out: str, **more: Any) -> Any:
        settings = {"tensorboard": False, "quiet": True, "eval_episodes": 0}
        return module.train(replace(config, kernel="auto"), Options(out=tmp_path / out, **settings, **more))

    monkeypatch.setattr("hotloop.training.learn.choose_kernel", choose)
    first = begin("first", steps=1024)
    monkeypatch.setattr("hotloop.training.learn.choose_kernel", choose_another)
    rest = begin("rest", steps=2048, resume=tmp_path / "first")
    assert candidates_seen == [None]
    for result in (first, rest):
        assert result.kernel == "numba"
        assert 'kernel = "numba"\n' in (Path(result.run_dir) / "config.toml").read_text()
        assert checkpoint.read(Path(result.checkpoint)).meta["config"]["kernel"] == "numba"
    name = first.pipeline
    assert parse(name, ["--resume", first.run_dir])[0].kernel == "numba"


STUCK = """
import os, signal, sys, time
from hotloop.cli.main import main
from hotloop.training.pipelines import dqn_snake
def stuck(run, timed):
    for number in {signals}:
        os.kill(os.getpid(), number)
    time.sleep(3600)
dqn_snake.learn = stuck
sys.exit(main(['train', 'dqn-snake', '--kernel', 'torch', '--envs', '4', '--out', 'run']))
"""
SLOW_SAVE = """
import sys, time
from hotloop.cli.main import main
from hotloop.training.run import checkpoint
write = checkpoint.write
def slow(*args):
    print('saving', flush=True)
    time.sleep(2)
    write(*args)
checkpoint.write = slow
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_third_signal_ends_the_training_immediately(first: signal.Signals, tmp_path: Path) -> None:
    # The update takes an hour: the first signal is not handled before the third arrives.
    code = STUCK.format(signals=[int(first), int(signal.SIGINT), int(first)])
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert ended.returncode == 128 + first, ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_second_signal_does_not_discard_the_checkpoint(tmp_path: Path) -> None:
    words = ["train", "dqn-snake", *flags(DQN), "--out", str(tmp_path / "run"), "--seconds", "60", "--no-profile"]
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_SAVE, *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stderr is not None and process.stdout is not None
    for line in process.stderr:
        if "steps/s" in line:
            break
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "saving\n"
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 143, stderr
    assert "a checkpoint is being saved" in stderr
    assert checkpoint.read(checkpoint.find(tmp_path / "run")).meta["counts"]["env_steps"] > 0


def test_closing_the_terminal_saves_a_checkpoint(tmp_path: Path) -> None:
    words = ["train", "dqn-snake", *flags(DQN), "--out", str(tmp_path / "run"), "--seconds", "60", "--no-profile"]
    child, terminal = pty.fork()
    if not child:
        os.execv(sys.executable, [sys.executable, "-m", "hotloop.cli.main", *words])
    output = b""
    while b"steps/s" not in output:
        output += os.read(terminal, 4096)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 129
    assert checkpoint.read(checkpoint.find(tmp_path / "run")).meta["counts"]["env_steps"] > 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["stopped_by"] == "SIGHUP"


def test_a_full_disk_does_not_end_the_training(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "300k") as disk:
        words = ["train", "dqn-snake", *flags(DQN), "--out", disk / "run", "--steps", 8000, "--json", "--no-profile"]
        done = hotloop(*words, "--checkpoint-every", 1000, "--eval-every", 0, "--keep", 2)
        result = json.loads(done.stdout)
        assert (done.returncode, result["exit_code"], result["env_steps"]) == (2, 2, 8000)
        assert "No space left on device" in done.stderr and "Traceback" not in done.stderr
        kept = sorted(each.name for each in (disk / "run" / "checkpoints").iterdir())
        assert result["checkpoint"].endswith(kept[-1]), "the newest complete checkpoint"
        for name in kept:
            checkpoint.read(disk / "run" / "checkpoints" / name)


def test_train_explain_evaluate_and_play_in_sequence(tmp_path: Path) -> None:
    run = tmp_path / "run"
    report = tmp_path / "report.json"
    done = hotloop("train", "dqn-snake", *flags(DQN), "--steps", 20_000, "--out", run, "--json",
                   "--profiling-report", report, "--profiling-summary-freq", 5000)  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["env_steps"], result["kernel"], result["stopped_by"]) == (20_000, "numba", "steps")
    assert result["eval_score"] > 2  # a random agent scores about 0.2 here
    assert "phases" in json.loads(report.read_text())
    assert done.stderr.count("dqn-snake: profile of run") == 4
    assert "(20,000 in all)" in done.stderr
    assert 'kernel = "numba"' in (run / "config.toml").read_text()

    explained = json.loads(hotloop("explain", run, "--json").stdout)
    assert explained["counts"]["env_steps"] == 20_000
    assert explained["counts"]["updates"] == result["updates"]
    assert explained["counts"]["episodes"] == result["episodes"]
    assert explained["attributed_share"] > 0.95

    evaluated = hotloop("evaluate", run, "--board", "6,8", "--episodes", 16, "--compare", run, "--json")
    assert evaluated.returncode == 0, evaluated.stderr
    boards = json.loads(evaluated.stdout)
    assert [each["board"] for each in boards["boards"]] == [6, 8]
    assert [each["verdict"] for each in boards["compare"]["boards"]] == ["inconclusive"] * 2
    table = hotloop("evaluate", run, "--episodes", 16, "--markdown", tmp_path / "table.md")
    assert "median" in table.stdout
    assert "| 6 |" in (tmp_path / "table.md").read_text()

    film = hotloop("play", run, "--gif", tmp_path / "game.gif", "--json")
    assert film.returncode == 0, film.stderr
    from PIL import Image

    with Image.open(tmp_path / "game.gif") as picture:
        assert picture.n_frames > 2  # type: ignore[attr-defined]
    shown = hotloop("play", run)
    assert shown.stdout.splitlines()[-1].startswith(f"score {json.loads(film.stdout)['score']} in ")


def test_an_agent_loaded_from_a_checkpoint_plays_identically(tmp_path: Path) -> None:
    for variant, steps in (("dqn", 3000), ("ppo", 3072)):
        result = train(variant, tmp_path / variant, steps=steps, eval_every=0, eval_episodes=16)
        agent = load_agent(tmp_path / variant)
        played = snake.play_episodes(agent.act, agent.config, 16, choosing=True)
        assert played.score.mean() == result.eval_score
        obs = np.random.default_rng(0).random((5, 10), np.float32)
        assert agent.act(obs).shape == (5,)
        assert agent.act(obs[0]) == agent.act(obs)[0]
        # The kernels treat this as a device other than "cpu", which numba does not support.
        elsewhere = load_agent(tmp_path / variant, device="cpu:0")
        assert (agent.config.kernel, elsewhere.config.kernel) == ("numba", "torch")
        assert elsewhere.act(obs).tolist() == agent.act(obs).tolist()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["train", "dqn"], "unknown pipeline 'dqn'"),
        (["train", "--steps", "3"], "the pipeline comes first"),
        (["train", "dqn-snake", "--kernel", "magic"], "invalid choice 'magic' for argument '--kernel'"),
        (["train", "dqn-snake", "--kernel", "numba", "--features", "grid", "--network", "cnn", "--steps", "9"],
         "'numba' kernel cannot run this network"),
        (["train", "dqn-snake", "--device", "cuda:77"], "--device cuda:77 cannot be used"),
        (["train", "dqn-snake", "--seed", "-1"], "--seed is -1: give a whole number from 0"),
        (["train", "ppo-snake", "--profile-report", "nowhere/r.json"], "--profile-report nowhere/r.json: there is no"),
        (["train", "ppo-snake", "--profile-report", "."], "--profile-report . is a directory: name a file"),
        (["train", "ppo-snake", "--quiet", "--board", "2", "--profile-report", "run/r.json", "--out", "run"],
         "board is 2: give a whole number from 5 to 64"),
        (["train", "dqn-snake", "--resume", "."], "holds no checkpoint"),
        (["play", "nowhere"], "no checkpoint at nowhere"),
        (["evaluate", "nowhere", "--board", "x"], "8,10,15"),
    ],
)  # fmt: skip
def test_invalid_arguments_print_one_line_and_exit_with_2(
    words: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert complaint in refused(capsys, *words)
    assert not (tmp_path / "run").exists() and not (tmp_path / "runs").exists()


def test_a_damaged_or_incompatible_checkpoint_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, new = tmp_path / "a rün", tmp_path / "new"
    result = train("dqn", run, steps=1024, eval_every=0)
    resume = ["train", "dqn-snake", "--resume", run]
    foreign = refused(capsys, "train", "ppo-snake", "--resume", run, "--out", new)
    assert f"is of pipeline dqn-snake, not ppo-snake: `{shlex.join(['hotloop', *map(str, resume)])}`" in foreign
    assert "cannot resume with --board 8" in refused(capsys, *resume, "--board", 8, "--out", new)
    assert "is not an empty directory" in refused(capsys, *resume, "--out", run)
    for command in ("play", "evaluate"):
        assert "--board 0: give a size from 5 to 64" in refused(capsys, command, run, "--board", 0)
    assert "(3, 13): give this agent one of (10,)" in wrong_width(run)
    file = Path(result.checkpoint) / "learner.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    for words in (resume, ["play", run], ["evaluate", run]):
        assert "is damaged or missing" in refused(capsys, *words)
    assert not new.exists()


def wrong_width(run: Path) -> str:
    with pytest.raises(HotloopError) as caught:
        load_agent(run).act(np.zeros((3, 13), np.float32))
    return str(caught.value)


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Call a command that must fail with exit code 2 and one line; return the line."""
    (line,) = refusal(capsys, *words)
    return line


def test_train_without_arguments_lists_the_pipelines_without_importing_torch() -> None:
    listed = hotloop("train")
    assert listed.returncode == 0
    for name in ("dqn-snake", "ppo-snake", "--preset faithful", "--preset rainbow"):
        assert name in listed.stdout
    code = (
        "import sys; from hotloop.cli import main; main.main('train dqn-snake --envs x'.split()); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()
    assert not {"torch", "numba", "gymnasium"} & set(loaded)
