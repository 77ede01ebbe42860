"""The short form of the fuzz harness: some eighty damages of real runs, read by the commands."""

from __future__ import annotations

from tests.fuzz.runs import fuzz_runs


def test_damaged_runs_are_read_or_refused_in_one_line():
    assert fuzz_runs(40, seed=0, thorough=False) == []
