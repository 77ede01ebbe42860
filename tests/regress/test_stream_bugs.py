"""Bugs of commands whose stdout or stderr cannot be written, or on whose stderr Python's warnings came."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from hotloop.cli.main import main

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
TRAIN = ["train", "dqn-snake", "--kernel", "numba", "--envs", "8", "--batch", "8", "--updates-per-step", "1"]
TRAIN += ["--buffer", "2000", "--learning-starts", "64", "--eval-episodes", "0"]


def called(words: list[object], **streams: int) -> tuple[int, str, str]:
    """Call a command in a process of its own; return its exit code and what it wrote."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    done = subprocess.run([sys.executable, "-m", "hotloop", *map(str, words)], text=True, **streams)
    return done.returncode, done.stdout or "", done.stderr or ""


@needs_full
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["explain", "/nonexistent"], 2),
        (["explain", "--nonsense"], 2),
        (["run", "/nonexistent.py"], 2),
        (["ls", "--dir", "/nonexistent"], 0),
        (["--version"], 0),
    ],
)
def test_a_stderr_that_cannot_be_written_leaves_the_exit_code(words: list[object], code: int) -> None:
    with FULL.open("w") as full:
        assert called(words, stderr=full.fileno())[0] == code


@needs_full
@pytest.mark.parametrize("words", [["--version"], ["--help"], ["explain", "--help"]])
def test_a_stdout_that_cannot_be_written_is_one_line(words: list[object]) -> None:
    with FULL.open("w") as full:
        code, _, told = called(words, stdout=full.fileno())
    assert (code, len(told.splitlines())) == (2, 1), told
    assert "cannot write the output" in told


@needs_full
def test_a_training_without_stderr_ends_well_and_one_whose_json_is_lost_does_not(tmp_path: Path) -> None:
    """The result that a program waits for was lost with exit code 0."""
    with FULL.open("w") as full:
        lost = called([*TRAIN, "--steps", 200, "--no-tensorboard", "--out", tmp_path / "a"], stderr=full.fileno())
        assert lost[0] == 0
        assert "saved" in lost[1]
        more = ["--steps", 200, "--no-tensorboard", "--json", "--quiet", "--out", tmp_path / "b"]
        code, _, told = called([*TRAIN, *more], stdout=full.fileno())
    assert (code, len(told.splitlines())) == (2, 1), told
    assert "cannot write the output" in told
    assert os.listdir(tmp_path / "b" / "checkpoints")


def test_warnings_of_libraries_do_not_reach_stderr(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    import hotloop.cli.doctor as doctor

    def warns(arguments: object) -> int:
        warnings.warn("overflow encountered in multiply", RuntimeWarning, stacklevel=1)
        return 0

    monkeypatch.setattr(doctor, "run", warns)
    monkeypatch.setattr(sys, "warnoptions", [])
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["doctor"]) == 0
    assert capsys.readouterr().err == ""
