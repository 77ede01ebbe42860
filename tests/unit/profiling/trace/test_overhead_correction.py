"""Correction by hand; random trees are in tests/property."""

from __future__ import annotations

import pytest

from hotloop.profiling.trace.build.overhead_correction import Costs, Entry, corrected


def by_id(entries: list[Entry]) -> dict[int, Entry]:
    return {entry.id: entry for entry in entries}


def test_half_of_a_spans_overhead_is_in_its_own_time_and_half_in_its_parents():
    tree = [Entry(0, -1, "root", 0, 0, 10_000, 4_000), Entry(1, 0, "span", 1, 10, 6_000, 6_000)]
    found, taken = corrected(tree, {}, Costs(50.0, 50.0, {}))
    assert taken == 1000
    assert by_id(found)[1].total_ns == 5_500
    assert by_id(found)[0].total_ns == 9_000
    assert by_id(found)[0].self_ns == 3_500


def test_overhead_of_a_span_is_subtracted_from_all_its_ancestors():
    tree = [
        Entry(0, -1, "root", 0, 0, 11_000, 1_000),
        Entry(1, 0, "span", 1, 1, 10_000, 2_000),
        Entry(2, 1, "span", 2, 100, 8_000, 8_000),
    ]
    found, _ = corrected(tree, {}, Costs(10.0, 10.0, {}))
    assert by_id(found)[2].total_ns == 7_000
    assert by_id(found)[1].total_ns == 10_000 - 2_000 - 10
    assert by_id(found)[0].total_ns == 11_000 - 2_020


def test_wrapper_overhead_is_subtracted_for_counted_calls_as_well():
    tree = [Entry(0, -1, "root", 0, 0, 10_000, 9_000), Entry(1, 0, "span", 1, 10, 1_000, 1_000)]
    _, taken = corrected(tree, {1: 4.0}, Costs(0.0, 0.0, {1: 5.0}))
    assert taken == 10 * 4 * 5


def test_wrapper_overhead_within_a_call_is_subtracted_from_it_and_its_ancestors():
    tree = [
        Entry(0, -1, "root", 0, 0, 10_000, 1_000),
        Entry(1, 0, "span", 1, 10, 9_000, 3_000),
        Entry(2, 1, "span", 2, 10, 6_000, 6_000),
    ]
    found, taken = corrected(tree, {}, Costs(0.0, 0.0, {2: 7.0}, {2: 5.0}))
    assert by_id(found)[2].total_ns == 6_000 - 10 * 5
    assert by_id(found)[1].total_ns == 9_000 - 10 * 12
    assert (by_id(found)[0].total_ns, taken) == (10_000 - 120, 120)


def test_thinned_spans_are_scaled_up_at_the_expense_of_what_is_around_them():
    tree = [
        Entry(0, -1, "root", 0, 0, 10_000, 0),
        Entry(1, 0, "span", 1, 10, 2_000, 2_000),
        Entry(2, 0, "gap", 0, 0, 1_000, 1_000),
        Entry(3, 0, "gap", 0, 0, 7_000, 7_000, dark=True),
    ]
    found, _ = corrected(tree, {1: 4.0}, Costs(0.0, 0.0, {}))
    assert (by_id(found)[1].calls, by_id(found)[1].total_ns) == (40, 8_000)
    assert by_id(found)[2].self_ns == pytest.approx(2_000)
    assert 3 not in by_id(found)


def test_a_scaled_span_is_never_longer_than_its_parent():
    tree = [Entry(0, -1, "root", 0, 0, 1_000, 200), Entry(1, 0, "span", 1, 4, 800, 800)]
    found, _ = corrected(tree, {1: 3.0}, Costs(0.0, 0.0, {}))
    assert by_id(found)[1].total_ns == 1_000
    assert by_id(found)[0].self_ns == 0


def test_calls_and_their_time_may_be_scaled_by_different_factors():
    tree = [Entry(0, -1, "root", 0, 0, 10_000, 8_000), Entry(1, 0, "span", 1, 10, 2_000, 2_000)]
    found, _ = corrected(tree, {1: 4.0}, Costs(0.0, 0.0, {}), {1: 1.5})
    assert (by_id(found)[1].calls, by_id(found)[1].total_ns) == (40, 3_000)
    assert by_id(found)[0].self_ns == 7_000


def test_scaling_up_keeps_the_known_time_of_gaps():
    tree = [
        Entry(0, -1, "root", 0, 0, 10_000, 0),
        Entry(1, 0, "span", 1, 10, 4_000, 4_000),
        Entry(2, 0, "gap", 0, 0, 1_500, 1_500),
        Entry(3, 0, "gap", 0, 0, 4_500, 4_500, dark=True),
    ]
    found, _ = corrected(tree, {1: 3.0}, Costs(0.0, 0.0, {}))
    assert by_id(found)[1].total_ns == 8_500
    assert by_id(found)[2].self_ns == 1_500
