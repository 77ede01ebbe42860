"""A short run of the fuzzer: about eighty damaged runs, read by the commands."""

from __future__ import annotations

from tests.fuzz.runs import fuzz_runs


def test_damaged_runs_are_read_or_rejected_in_one_line():
    assert fuzz_runs(40, seed=0, thorough=False) == []
