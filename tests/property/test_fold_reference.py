"""fold() equals the reference implementation on random event streams cut at any point."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.property.reference import Event, Path, Sums, reference

from hotloop.phases import Phase
from hotloop.profiling.recorder.call_tree.thread_totals import Account
from hotloop.profiling.recorder.call_tree.tree import Codes, Tree, codes_of
from hotloop.spans.registry import COUNTER_BASE, Span

PHASES = (None, Phase.ENV, Phase.FORWARD, Phase.BACKWARD, Phase.OTHER, Phase.SAMPLE)
SPANS = [Span(f"s{i}", phase, i + 1, hook=True) for i, phase in enumerate(PHASES)]
CODES: Codes = codes_of(SPANS)
BEGIN_NS = 1_000


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Event], int]:
    """Well-nested events in chronological order, some still open at the end; and the end."""
    stack: list[int] = []
    events: list[Event] = []
    now = BEGIN_NS
    for _ in range(draw(st.integers(0, 40))):
        now += draw(st.integers(0, 20))
        move = draw(st.integers(0, 5))
        if move <= 2 and len(stack) < 6:
            stack.append(draw(st.integers(1, len(SPANS))))
            events.append((stack[-1], now))
        elif move <= 4 and stack:
            events.append((-stack.pop(), now))
        else:
            events.append((COUNTER_BASE + draw(st.integers(0, 1)), draw(st.integers(-3, 1000))))
    return events, now + draw(st.integers(0, 20))


@st.composite
def cut_streams(draw: st.DrawFn) -> tuple[list[list[Event]], list[int]]:
    """A stream in segments, and the end of each segment."""
    events, end = draw(streams())
    places = sorted(draw(st.lists(st.integers(0, len(events)), max_size=6)))
    segments, ends = [], []
    latest = BEGIN_NS
    for start, stop in zip([0, *places], [*places, len(events)], strict=True):
        segments.append(events[start:stop])
        times = [value for code, value in events[:stop] if code < COUNTER_BASE]
        following = [value for code, value in events[stop:] if code < COUNTER_BASE]
        low, high = max([latest, *times]), min([end, *following])
        latest = draw(st.integers(low, max(low, high)))
        ends.append(latest)
    ends[-1] = end
    return segments, ends


def as_array(events: list[Event]) -> np.ndarray:
    return np.array(events, np.int64).reshape(-1, 2)


def folded(segments: list[list[Event]], ends: list[int], dark: list[bool] | None = None) -> Account:
    account = Account(0, 0, "test", BEGIN_NS)
    for i, (segment, end) in enumerate(zip(segments, ends, strict=True)):
        account.fold(as_array(segment), end, CODES, bool(dark and dark[i]))
    return account


def path_of(tree: Tree, node: int) -> Path:
    """Codes from the root to a span. A gap belongs to its parent; a network has one code, acting or learning."""
    codes: list[int] = []
    while node:
        key = tree.keys[node]
        if key.kind == "span":
            codes.append(key.variant >> 1)
        node = key.parent
    return tuple(reversed(codes))


def sums_of(account: Account) -> Sums:
    sums = Sums()
    for node, key in enumerate(account.tree.keys):
        path = path_of(account.tree, node)
        sums.self_ns[path] += int(account.window["self_ns"][node])
        if key.kind != "gap":
            sums.total_ns[path] += int(account.window["total_ns"][node])
            sums.calls[path] += int(account.window["calls"][node])
            if account.window["calls"][node]:
                shortest, longest = int(account.min_ns[node]), int(account.max_ns[node])
                sums.shortest_ns[path] = min(shortest, sums.shortest_ns.get(path, shortest))
                sums.longest_ns[path] = max(longest, sums.longest_ns.get(path, longest))
    for (node, code), amount in account.counters.items():
        sums.counters[path_of(account.tree, node), code] += amount
    return sums


def without_zeros(counter: Counter) -> dict:
    return {key: value for key, value in counter.items() if value}


@given(cut_streams())
def test_fold_equals_the_reference(cut):
    segments, ends = cut
    account = folded(segments, ends)
    expected = reference([event for segment in segments for event in segment], BEGIN_NS, ends[-1])
    got = sums_of(account)
    for name in ("total_ns", "self_ns", "calls", "counters"):
        assert without_zeros(getattr(got, name)) == without_zeros(getattr(expected, name)), name
    assert got.shortest_ns == expected.shortest_ns
    assert got.longest_ns == expected.longest_ns
    assert int(account.histogram.sum()) == sum(expected.calls.values())


@given(cut_streams(), st.data())
def test_unrecorded_time_changes_only_the_names_of_gaps(cut, data):
    segments, ends = cut
    dark = data.draw(st.lists(st.booleans(), min_size=len(ends), max_size=len(ends)))
    lit, dim = sums_of(folded(segments, ends)), sums_of(folded(segments, ends, dark))
    assert without_zeros(lit.self_ns) == without_zeros(dim.self_ns)
    assert without_zeros(lit.counters) == without_zeros(dim.counters)
    assert lit.calls == dim.calls


@given(cut_streams())
def test_self_times_add_up_to_wall_time_and_children_nest_in_their_parents(cut):
    account = folded(*cut)
    wall = cut[1][-1] - BEGIN_NS
    self_ns, total_ns = account.window["self_ns"], account.window["total_ns"]
    assert int(self_ns.sum()) == wall
    assert (self_ns >= 0).all()
    below: Counter[int] = Counter()
    for node, key in enumerate(account.tree.keys):
        if key.parent >= 0:
            below[key.parent] += int(total_ns[node])
    for node in range(len(account.tree.keys)):
        assert below[node] + int(self_ns[node]) == int(total_ns[node])


@st.composite
def broken_streams(draw: st.DrawFn) -> tuple[list[list[Event]], list[int]]:
    """Streams with lost events, or with ends that have no begin."""
    segments, ends = draw(cut_streams())
    at = BEGIN_NS
    for segment, end in zip(segments, ends, strict=True):
        for _ in range(draw(st.integers(0, 3))):
            if segment and draw(st.booleans()):
                gone = draw(st.integers(0, len(segment) - 1))
                if segment[gone][0] < COUNTER_BASE:
                    del segment[gone]
            else:
                times = [value for code, value in segment if code < COUNTER_BASE]
                place = draw(st.integers(0, len(segment)))
                before = [value for code, value in segment[:place] if code < COUNTER_BASE]
                value = max([at, *before]) if times else at
                segment.insert(place, (-draw(st.integers(1, len(SPANS))), value))
        at = end
    return segments, ends


@given(broken_streams(), st.data())
def test_lost_and_orphan_events_never_change_the_total(cut, data):
    segments, ends = cut
    dark = data.draw(st.lists(st.booleans(), min_size=len(ends), max_size=len(ends)))
    account = folded(segments, ends, dark)
    assert int(account.window["self_ns"].sum()) == ends[-1] - BEGIN_NS
    assert (account.window["self_ns"] >= 0).all()
    amounts: Counter[int] = Counter()
    for segment in segments:
        for code, value in segment:
            if code >= COUNTER_BASE:
                amounts[code] += value
    kept: Counter[int] = Counter()
    for (_, code), amount in account.counters.items():
        kept[code] += amount
    assert without_zeros(kept) == without_zeros(amounts)
    begun = sum(code > 0 for segment in segments for code, _ in segment if code < COUNTER_BASE)
    assert 0 <= int(account.window["calls"].sum()) <= begun


@given(cut_streams())
def test_every_moment_has_exactly_one_innermost_node(cut):
    """A stack sample is assigned to the span that was running according to the reference."""
    segments, ends = cut
    account = Account(0, 0, "test", BEGIN_NS)
    at = BEGIN_NS
    seen: Counter[Path] = Counter()
    for segment, end in zip(segments, ends, strict=True):
        account.sightings = [(moment, 0, 1, 1, 0, 0, 0, 0) for moment in range(at, end)]
        account.fold(as_array(segment), end, CODES, False)
        at = end
    for (node, _), (n, *_) in account.samples.items():
        seen[path_of(account.tree, node)] += n
    expected = reference([event for segment in segments for event in segment], BEGIN_NS, ends[-1])
    assert without_zeros(seen) == without_zeros(expected.self_ns)


def named_sums(account: Account) -> dict:
    """Total, self time and calls by path; the gaps of a container are merged, and so are a network's calls.

    If the end of a segment leaves open which gap it is or whether a network acted, a fold assumes the last one seen.
    The two folds differ in that: one goes through events in order of time, the other by levels.
    """
    keys = account.tree.keys

    def path(node: int) -> tuple:
        key = keys[node]
        if key.parent < 0:
            return ()
        return (*path(key.parent), (key.kind, key.variant >> 1) if key.kind == "span" else ("gap",))

    sums: dict[tuple, np.ndarray] = {}
    for node in range(len(keys)):
        row = np.array([int(account.window[name][node]) for name in ("total_ns", "self_ns", "calls")])
        sums[path(node)] = sums.get(path(node), 0) + row
    return {name: row.tolist() for name, row in sums.items() if row.any()}


def folded_in_python(segments: list[list[Event]], ends: list[int], dark: list[bool]) -> Account:
    account = Account(0, 0, "twin", BEGIN_NS)
    account.tree.places = None
    for segment, end, dim in zip(segments, ends, dark, strict=True):
        account.fold(as_array(segment), end, CODES, dim)
    return account


@given(cut_streams() | broken_streams(), st.data())
def test_c_and_python_folds_agree(cut, data):
    segments, ends = cut
    dark = data.draw(st.lists(st.booleans(), min_size=len(ends), max_size=len(ends)))
    fast, twin = folded(segments, ends, dark), folded_in_python(segments, ends, dark)
    assert named_sums(fast) == named_sums(twin)
    assert [(o.start_ns, o.last_child >> 1, o.code) for o in fast.opened] == [
        (o.start_ns, o.last_child >> 1, o.code) for o in twin.opened
    ]
    assert fast.histogram.sum(axis=0).tolist() == twin.histogram.sum(axis=0).tolist()
    assert sum(fast.counters.values()) == sum(twin.counters.values())
