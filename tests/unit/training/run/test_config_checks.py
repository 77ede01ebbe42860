"""Checks that all pipelines share, and what a user sees who has installed the core alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from hotloop.cli.main import main
from hotloop.cli.train import parse
from hotloop.errors import HotloopError
from hotloop.training.pipelines import dqn_snake, ppo_snake
from hotloop.training.registry import PIPELINES
from hotloop.training.run.config_checks import torch_threads


@pytest.mark.parametrize("words", [["demo"], ["train", "dqn-snake"], ["play", "run"], ["evaluate", "run"]])
def test_without_the_extra_one_line_says_what_to_install(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("torch", "numba"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(words) == 2
    said = 'hotloop: to train and to play, numba, torch must be installed: `pip install "hotloop[train]"`\n'
    assert capsys.readouterr().err == said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_seed_below_zero_is_refused_by_every_pipeline(pipeline: str) -> None:
    with pytest.raises(HotloopError, match=r"^--seed is -1: give a whole number from 0 to 2\*\*63 - 1$"):
        parse(pipeline, ["--seed", "-1"])
    assert parse(pipeline, ["--seed", str((1 << 63) - 1)])[0].seed == (1 << 63) - 1


def test_a_seed_below_zero_is_refused_from_python() -> None:
    for module in (dqn_snake, ppo_snake):
        with pytest.raises(HotloopError, match="--seed is -1"):
            module.Config(seed=-1)


@pytest.mark.parametrize("flushing", [False, True])
def test_subnormal_numbers_are_what_they_were_afterwards(flushing: bool) -> None:
    threads = torch.get_num_threads()
    if not torch.set_flush_denormal(flushing):
        pytest.skip("this processor cannot flush subnormal numbers")
    try:
        with torch_threads(1):
            assert sys.float_info.min / 2 == 0
            assert torch.get_num_threads() == 1
        assert (sys.float_info.min / 2 == 0) is flushing
        assert torch.get_num_threads() == threads
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("number", [0, -1, 10**6, 1 << 62])
def test_absurd_numbers_of_threads_are_refused(number: int) -> None:
    with pytest.raises(HotloopError, match=f"--threads is {number}: give a number from 1 to"), torch_threads(number):
        pass
