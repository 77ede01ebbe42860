from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hotloop.pipelines import ppo_snake, warming

MODULE = "hotloop.learn.ppo_fused"


def test_a_cache_without_the_module_is_cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert warming.is_cold(MODULE)
    (tmp_path / "learn_abc").mkdir()
    (tmp_path / "learn_abc" / "other.f-1.py311.nbi").touch()
    assert warming.is_cold(MODULE)
    (tmp_path / "learn_abc" / "ppo_fused.f-1.py311.nbi").touch()
    assert not warming.is_cold(MODULE)


@pytest.mark.slow
def test_what_was_compiled_ahead_is_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    with warming.learner_compiled_ahead("ppo-snake", ppo_snake.Config(hidden=(8, 8)), MODULE):
        assert warming.is_cold(MODULE)
    assert not warming.is_cold(MODULE)


def test_nothing_is_started_where_there_is_nothing_to_gain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    with warming.learner_compiled_ahead("ppo-snake", ppo_snake.Config(kernel="torch"), MODULE):
        pass
    (tmp_path / "ppo_fused.f-1.py311.nbi").touch()
    with warming.learner_compiled_ahead("ppo-snake", ppo_snake.Config(), MODULE):
        pass


def test_a_failure_meanwhile_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    with pytest.raises(ZeroDivisionError), warming.learner_compiled_ahead("ppo-snake", ppo_snake.Config(), MODULE):
        raise ZeroDivisionError
