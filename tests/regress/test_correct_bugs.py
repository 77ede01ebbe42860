"""Regression tests for fixed bugs of the overhead correction."""

from __future__ import annotations

import pytest

from hotloop.profiling.trace.build.overhead_correction import Costs, Entry, corrected


def test_the_overhead_of_counted_calls_does_not_consume_a_thinned_caller():
    # Both were timed in one of 64 blocks. The wrapper overhead of all calls was subtracted from the caller's unscaled
    # total, which left nothing of it or of its callees.
    tree = [
        Entry(0, -1, "root", 0, 0, 64_000_000, 0),
        Entry(1, 0, "span", 1, 100, 990_000, 190_000),
        Entry(2, 1, "span", 2, 100, 800_000, 800_000),
    ]
    costs = Costs(500.0, 500.0, {1: 300.0, 2: 300.0}, counted_ns=250.0)
    found, taken = corrected(tree, {1: 64.0, 2: 64.0}, costs)
    inner = next(entry for entry in found if entry.id == 2)
    assert inner.calls == 6400
    assert inner.total_ns == pytest.approx(64 * 800_000 - 500 * 6400)
    assert taken == pytest.approx(2 * (100 * 1000 + 6300 * 250 + 6400 * 300))
