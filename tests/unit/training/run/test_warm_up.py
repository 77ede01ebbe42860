from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from hotloop.training.pipelines import dqn_snake, ppo_snake
from hotloop.training.run import warm_up

MODULE = "hotloop.training.learn.ppo.numba_kernel"


def test_a_cache_without_the_module_is_cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert warm_up.is_cold(MODULE)
    for folder, name in (("ppo_abc", "other.f-1.py311.nbi"), ("dqn_abc", "numba_kernel.f-1.py311.nbi")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).touch()
        assert warm_up.is_cold(MODULE)
    (tmp_path / "ppo_abc" / "numba_kernel.f-1.py311.nbi").touch()
    assert not warm_up.is_cold(MODULE)


@pytest.mark.slow
def test_what_was_compiled_ahead_is_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    with warm_up.learner_compiled_ahead("ppo-snake", ppo_snake.Config(hidden=(8, 8)), MODULE):
        assert warm_up.is_cold(MODULE)
    assert not warm_up.is_cold(MODULE)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What processes are asked for, none of which is started; numba's cache is empty."""
    asked: list[object] = []

    def refuse(words: object, **kwargs: object) -> None:
        asked.append(words)
        raise OSError("no process in this test")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return asked


def test_nothing_is_started_where_there_is_nothing_to_gain(tmp_path: Path, started: list[object]) -> None:
    with warm_up.learner_compiled_ahead("ppo-snake", ppo_snake.Config(kernel="torch"), MODULE):
        pass
    (tmp_path / "ppo_abc").mkdir()
    (tmp_path / "ppo_abc" / "numba_kernel.f-1.py311.nbi").touch()
    with warm_up.learner_compiled_ahead("ppo-snake", ppo_snake.Config(), MODULE):
        pass
    assert started == []


def test_a_cold_learner_that_numba_can_run_is_compiled_ahead(started: list[object]) -> None:
    with pytest.raises(OSError), warm_up.learner_compiled_ahead("ppo-snake", ppo_snake.Config(), MODULE):
        pass
    assert len(started) == 1


@pytest.mark.parametrize(
    ("module", "config"),
    [
        (dqn_snake, dqn_snake.Config(board=6, features="grid", network="cnn", hidden=(8,))),
        (dqn_snake, dqn_snake.Config(board=6, categorical=True, hidden=(8,))),
        (ppo_snake, ppo_snake.Config(board=6, features="grid", network="cnn", hidden=(8,))),
    ],
)
def test_nothing_is_started_for_a_network_that_numba_cannot_run(
    module: Any, config: Any, started: list[object]
) -> None:
    learner = module.Agent(config).learner
    supported = learner.supported_kernels()
    with warm_up.learner_compiled_ahead("any", config, MODULE, supported):
        pass
    assert started == []


def test_a_failure_meanwhile_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    with pytest.raises(ZeroDivisionError), warm_up.learner_compiled_ahead("ppo-snake", ppo_snake.Config(), MODULE):
        raise ZeroDivisionError
