"""Options are checked once, when they are made."""

from __future__ import annotations

import dataclasses

import pytest

from hotloop.errors import HotloopError
from hotloop.profiling.recorder.record_options import RecordOptions


@pytest.mark.parametrize(
    "wrong",
    [
        {"budget": 0}, {"budget": 1.5}, {"budget": -0.1}, {"hz": -1}, {"hz": 1001}, {"after_steps": -1},
        {"after_s": -0.5}, {"for_s": -1}, {"window_s": 0}, {"budget": float("nan")},
    ],
)  # fmt: skip
def test_what_cannot_be_recorded_with_is_refused_with_value_and_remedy(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(HotloopError, match=f"{name} {value}.*: give "):
        RecordOptions(**wrong)


def test_defaults_and_limits_are_accepted():
    assert RecordOptions().budget == 0.01
    RecordOptions(budget=1, hz=0, after_steps=10, for_s=5)
    RecordOptions(hz=1000)
    with pytest.raises(dataclasses.FrozenInstanceError):
        RecordOptions().hz = 5  # type: ignore[misc]
