"""Hooks for what stops the loop as a whole: writing buffers and arrays, and collecting garbage by hand."""

from __future__ import annotations

import gc
import io
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotloop.phases import Phase
from hotloop.profiling.recorder.hooks import install
from hotloop.spans import registry

Timed = Callable[[Callable[[], Any]], list[tuple[str, Phase | None]]]


@pytest.fixture
def timed() -> Iterator[Timed]:
    """Returns what runs a function hooked, and gives the spans that it began: name and phase."""
    uninstall = install()

    def run(work: Callable[[], Any]) -> list[tuple[str, Phase | None]]:
        logs = registry.listen()
        try:
            work()
        finally:
            registry.hush()
        every = registry.known_spans()
        return [
            (every[code - 1].name, every[code - 1].phase)
            for log in logs
            for code in log.events[::2]
            if 0 < code < registry.COUNTER_BASE
        ]

    yield run
    registry.hush()
    uninstall()


def test_pickling_to_a_file_is_a_checkpoint_and_to_bytes_is_not(timed):
    out = io.BytesIO()
    assert timed(lambda: pickle.dump([1, 2], out)) == [("pickle.dump", Phase.CHECKPOINT)]
    assert pickle.loads(out.getvalue()) == [1, 2]
    assert timed(lambda: pickle.dumps([1, 2])) == []


@pytest.mark.parametrize("name", ["save", "savez", "savez_compressed"])
def test_writing_arrays_is_a_checkpoint(timed, name, tmp_path):
    file = tmp_path / ("a.npy" if name == "save" else "a.npz")
    assert timed(lambda: getattr(np, name)(file, np.arange(5))) == [(f"numpy.{name}", Phase.CHECKPOINT)]
    found = np.load(file)
    assert (found if name == "save" else found["arr_0"]).tolist() == [0, 1, 2, 3, 4]


def test_collecting_by_hand_is_no_phase_of_training_and_returns_what_it_did(timed):
    found: list[int] = []

    def work() -> None:
        loop: list[Any] = []
        loop.append(loop)
        del loop
        found.append(gc.collect())

    gc.collect()
    assert timed(work) == [("gc.collect", Phase.OTHER)]
    assert found[0] >= 1


def test_a_library_that_comes_later_is_hooked_when_it_comes(timed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "joblib.py").write_text("def dump(value, file):\n    return [file]\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "joblib", raising=False)
    import joblib

    assert timed(lambda: joblib.dump(1, "x")) == [("joblib.dump", Phase.CHECKPOINT)]
    assert joblib.dump(1, "x") == ["x"]
    monkeypatch.delitem(sys.modules, "joblib")


def test_all_is_put_back():
    before = pickle.dump, np.save, np.savez, np.savez_compressed, gc.collect
    uninstall = install()
    assert all(now is not was for now, was in zip(_now(), before, strict=True))
    uninstall()
    assert all(now is was for now, was in zip(_now(), before, strict=True))


def _now() -> tuple[types.FunctionType | Any, ...]:
    return pickle.dump, np.save, np.savez, np.savez_compressed, gc.collect
