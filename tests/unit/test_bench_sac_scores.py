"""bench/sac_scores.py: no evaluation is lost, and an interval of three seeds is wide enough."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("scipy")

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def scores(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    yield importlib.import_module("sac_scores")
    for name in ("sac_scores", "run_all", "measure"):
        if name not in before:
            sys.modules.pop(name, None)


def write(run: Path, rows: list[tuple[object, ...]]) -> None:
    lines = ["env_steps,seconds,eval_return,success_rate,return_last100"]
    lines += [",".join(map(str, row)) for row in rows]
    (run / "progress.csv").write_text("\n".join([*lines, ""]))


def test_an_evaluation_that_repeats_a_number_is_a_separate_point(scores: ModuleType, tmp_path: Path) -> None:
    rows = [
        (40, 1.0, "", "", -5.0),
        (100, 2.0, 7.5, 0.5, -4.0),
        (160, 3.0, 7.5, 0.5, -4.0),
        (204, 4.0, 8.5, 0.5, -3.0),  # the same share, a different return
        (260, 5.0, 8.5, 0.5, -3.0),
        (300, 6.0, 8.5, 0.5, -2.0),  # all the same: only the step differs
        (340, 7.0, 8.5, 0.5, -2.0),
    ]
    write(tmp_path, rows)
    assert scores.read_curve(tmp_path, "success_rate") == [(100, 2.0, 0.5), (204, 4.0, 0.5)]
    assert scores.read_curve(tmp_path, "success_rate", every=100) == [(100, 2.0, 0.5), (204, 4.0, 0.5), (300, 6.0, 0.5)]
    assert scores.read_curve(tmp_path, every=100) == [(100, 2.0, 7.5), (204, 4.0, 8.5), (300, 6.0, 8.5)]
    trained = scores.read_curve(tmp_path, "return_last100")
    assert [each[0] for each in trained] == [40, 100, 204, 300]


def test_the_interval_of_three_seeds_uses_students_t(scores: ModuleType) -> None:
    low, high = scores.interval(np.array([90.0, 100.0, 110.0]))
    # t of 2 degrees of freedom is 2.92 at 95 %; the standard error is 10 / √3.
    assert low == pytest.approx(100 - 2.919986 * 10 / 3**0.5, abs=1e-4)
    assert high == pytest.approx(100 + 2.919986 * 10 / 3**0.5, abs=1e-4)
