"""Regression tests for commands with unwritable stdout or stderr, or with Python warnings on stderr."""

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
    """Call a command in its own process; return its exit code and output."""
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
def test_an_unwritable_stderr_does_not_change_the_exit_code(words: list[object], code: int) -> None:
    with FULL.open("w") as full:
        assert called(words, stderr=full.fileno())[0] == code


@needs_full
@pytest.mark.parametrize("words", [["--version"], ["--help"], ["explain", "--help"]])
def test_an_unwritable_stdout_is_reported_in_one_line(words: list[object]) -> None:
    with FULL.open("w") as full:
        code, _, stderr = called(words, stdout=full.fileno())
    assert (code, len(stderr.splitlines())) == (2, 1), stderr
    assert "cannot write the output" in stderr


@needs_full
def test_training_succeeds_without_stderr_but_fails_if_its_json_is_lost(tmp_path: Path) -> None:
    """The result that a calling program waits for was lost with exit code 0."""
    with FULL.open("w") as full:
        lost = called([*TRAIN, "--steps", 200, "--no-tensorboard", "--out", tmp_path / "a"], stderr=full.fileno())
        assert lost[0] == 0
        assert "saved" in lost[1]
        more = ["--steps", 200, "--no-tensorboard", "--json", "--quiet", "--out", tmp_path / "b"]
        code, _, stderr = called([*TRAIN, *more], stdout=full.fileno())
    assert (code, len(stderr.splitlines())) == (2, 1), stderr
    assert "cannot write the output" in stderr
    assert os.listdir(tmp_path / "b" / "checkpoints")


def test_library_warnings_are_not_printed_to_stderr(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
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
