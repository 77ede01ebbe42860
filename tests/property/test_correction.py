"""Subtracting the overhead never makes a time negative, and the parts still add up to the total."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotloop.profiling.trace.build.overhead_correction import Costs, Entry, corrected


@st.composite
def trees(draw: st.DrawFn) -> list[Entry]:
    """Trees whose totals are their self times plus their children's totals, like those of the fold."""
    entries = [Entry(0, -1, "root", 0, 0, 0, draw(st.integers(0, 1000)))]
    for number in range(1, draw(st.integers(1, 12))):
        spans = [e.id for e in entries if e.kind != "gap"]
        kind = draw(st.sampled_from(["span", "span", "gap"]))
        dark = kind == "gap" and draw(st.booleans())
        calls = draw(st.integers(0, 50)) if kind == "span" else 0
        self_ns = draw(st.integers(0, 10_000))
        entries.append(
            Entry(
                number,
                draw(st.sampled_from(spans)),
                kind,
                number if kind == "span" else 0,
                calls,
                0,
                self_ns,
                dark,
            )
        )
    for entry in reversed(entries):
        entry.total_ns += entry.self_ns
        if entry.parent >= 0:
            entries[entry.parent].total_ns += entry.total_ns
    return entries


costs = st.builds(
    Costs,
    st.floats(0, 300),
    st.floats(0, 300),
    st.dictionaries(st.integers(1, 12), st.floats(0, 100), max_size=12),
)
scales = st.dictionaries(st.integers(1, 12), st.floats(1, 64), max_size=12)


def copied(entries: list[Entry]) -> list[tuple]:
    return [(e.id, e.parent, e.kind, e.code, e.calls, e.total_ns, e.self_ns, e.dark) for e in entries]


@given(trees(), scales, costs)
def test_self_times_add_up_to_the_corrected_root_and_are_not_negative(entries, scale, cost):
    before = copied(entries)
    tree, taken = corrected(entries, scale, cost)
    assert copied(entries) == before, "the input is not changed"
    root = next(e for e in tree if e.kind == "root")
    assert all(e.self_ns >= -1e-6 and e.total_ns >= -1e-6 for e in tree)
    assert sum(e.self_ns for e in tree) == pytest.approx(root.total_ns, abs=1e-3)
    assert taken >= 0
    assert not any(e.dark for e in tree)
    below: dict[int, float] = {}
    for e in tree:
        below[e.parent] = below.get(e.parent, 0.0) + e.total_ns
    for e in tree:
        assert below.get(e.id, 0.0) + e.self_ns == pytest.approx(e.total_ns, abs=1e-3)


@given(trees())
def test_without_overhead_or_thinning_only_unrecorded_time_moves(entries):
    tree, taken = corrected(entries, {}, Costs(0.0, 0.0, {}))
    assert taken == 0
    given_spans = {e.id: e for e in entries}
    for e in tree:
        assert e.calls == given_spans[e.id].calls
        if e.kind != "gap":
            assert e.total_ns == pytest.approx(given_spans[e.id].total_ns)
    if not any(e.dark for e in entries):
        for e in tree:
            assert e.self_ns == pytest.approx(given_spans[e.id].self_ns, abs=1e-6)


@given(trees(), scales)
def test_timed_calls_are_scaled_up_to_counted_calls(entries, scale):
    tree, _ = corrected(entries, scale, Costs(0.0, 0.0, {}))
    for e in tree:
        if e.kind == "span":
            assert e.calls == pytest.approx(entries[e.id].calls * scale.get(e.code, 1.0))
