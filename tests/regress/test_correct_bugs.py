"""Bugs of the correction that were found once."""

from __future__ import annotations

import pytest

from hotloop.profiling.trace.build.overhead import Costs, Entry, corrected


def test_costs_of_counted_calls_do_not_eat_up_a_caller_that_was_thinned_as_well():
    # Both were timed in one of 64 blocks. The wrappers' cost of all calls was taken off the caller's unscaled total,
    # which left nothing of it, and of what it called.
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
