"""What the fold makes of a handful of events, by hand; random ones are in tests/property."""

from __future__ import annotations

import numpy as np

from hotloop.phases import Phase
from hotloop.profiling.recorder.call_tree.fold import first_step, fold
from hotloop.profiling.recorder.call_tree.tree import DARK, EDGE, ROOT, OpenSpan, Tree, codes_of
from hotloop.spans.registry import COUNTER_BASE, Span

ENV, NET, BACK, TRAIN = 1, 2, 3, 4
SPANS = [
    Span("env.step", Phase.ENV, ENV),
    Span("Net", Phase.FORWARD, NET, hook=True),
    Span("backward", Phase.BACKWARD, BACK),
    Span("train", None, TRAIN),
]
CODES = codes_of(SPANS)
STEPS = COUNTER_BASE


def events(*pairs: tuple[int, int]) -> np.ndarray:
    return np.array(pairs, np.int64).reshape(-1, 2)


def fold_all(tree: Tree, pairs: list[tuple[int, int]], ends: tuple[int, int] = (0, 100), dark: bool = False):
    return fold(events(*pairs), (OpenSpan(ROOT, 0),), ends, CODES, tree, dark)


def by_key(tree: Tree, values: np.ndarray, nodes: np.ndarray) -> dict[tuple, int]:
    keys = {}
    for node, value in zip(nodes.tolist(), values.tolist(), strict=True):
        key = tree.keys[node]
        keys[key.kind, key.variant, key.before] = value
    return keys


def test_gaps_are_named_by_their_neighbours():
    tree = Tree()
    done = fold_all(tree, [(ENV, 10), (-ENV, 30), (BACK, 35), (-BACK, 60)])
    assert by_key(tree, done.self_ns, done.node) == {
        ("gap", 2 * ENV, EDGE): 10,
        ("span", 2 * ENV, EDGE): 20,
        ("gap", 2 * BACK, 2 * ENV): 5,
        ("span", 2 * BACK, EDGE): 25,
        ("gap", EDGE, 2 * BACK): 40,
        ("root", 0, EDGE): 0,
    }


def test_a_span_with_a_phase_keeps_the_time_between_its_children():
    tree = Tree()
    done = fold_all(tree, [(ENV, 0), (BACK, 10), (-BACK, 20), (-ENV, 100)])
    env = next(i for i, key in enumerate(tree.keys) if key.variant == 2 * ENV and key.kind == "span")
    assert done.self_ns[done.node.tolist().index(env)] == 90


def test_a_network_call_before_a_step_acts_and_before_backward_learns():
    tree = Tree()
    done = fold_all(
        tree, [(NET, 0), (-NET, 10), (ENV, 10), (-ENV, 20), (NET, 20), (-NET, 50), (BACK, 50), (-BACK, 100)]
    )
    spans = by_key(tree, done.total_ns, done.node)
    assert spans["span", 2 * NET + 1, EDGE] == 10
    assert spans["span", 2 * NET, EDGE] == 30


def test_a_network_call_whose_sequel_is_cut_off_is_what_it_was_last_time():
    tree = Tree()
    fold_all(tree, [(NET, 0), (-NET, 10), (ENV, 10), (-ENV, 20)])
    done = fold(events((NET, 110), (-NET, 120)), (OpenSpan(ROOT, 0),), (100, 200), CODES, tree)
    assert ("span", 2 * NET + 1, EDGE) in by_key(tree, done.total_ns, done.node)


def test_a_cut_gap_is_taken_for_the_one_seen_last_time():
    tree = Tree()
    first = fold_all(tree, [(ENV, 0), (-ENV, 10), (BACK, 20), (-BACK, 30), (ENV, 30), (-ENV, 40)], (0, 45))
    gap = next(i for i, key in enumerate(tree.keys) if key.kind == "gap" and key.before == 2 * ENV)
    at = first.node.tolist().index(gap)
    assert (first.self_ns[at], tree.keys[gap].variant) == (15, 2 * BACK)
    second = fold(events((BACK, 50), (-BACK, 60)), first.still_open, (45, 60), CODES, tree)
    assert second.self_ns[second.node.tolist().index(gap)] == 5, "and goes on in the next segment"


def test_in_the_dark_gaps_have_no_neighbours():
    tree = Tree()
    fold_all(tree, [(ENV, 10), (-ENV, 30)], dark=True)
    assert {key.before for key in tree.keys if key.kind == "gap"} == {DARK}


def test_a_call_over_a_cut_is_one_call_with_its_whole_length():
    tree = Tree()
    first = fold_all(tree, [(ENV, 90)])
    assert len(first.done_node) == 0
    assert [(each.start_ns, each.code) for each in first.still_open] == [(0, 0), (90, ENV)]
    second = fold(events((-ENV, 130)), first.still_open, (100, 200), CODES, tree)
    assert (second.done_start.tolist(), second.done_end.tolist()) == ([90], [130])


def test_counters_belong_where_they_were_counted():
    tree = Tree()
    done = fold_all(tree, [(STEPS, 1), (TRAIN, 0), (ENV, 0), (STEPS, 2), (-ENV, 50), (STEPS, 3), (-TRAIN, 100)])
    names = [(tree.keys[node].kind, tree.keys[node].variant) for node in done.counter_node.tolist()]
    assert names == [("root", 0), ("span", 2 * ENV), ("gap", EDGE)]
    assert done.counter_amount.tolist() == [1, 2, 3]


def test_an_empty_segment_is_all_its_container():
    tree = Tree()
    done = fold_all(tree, [])
    assert (done.node.tolist(), done.total_ns.tolist(), done.self_ns.tolist()) == ([0], [100], [100])


def test_the_first_step_begins_with_its_outermost_environment():
    stepped = events((TRAIN, 0), (ENV, 1), (-ENV, 2), (ENV, 3), (ENV, 4), (STEPS, 1), (-ENV, 5), (-ENV, 6))
    assert first_step(stepped, STEPS, CODES) == 3
    after = events((TRAIN, 0), (ENV, 1), (-ENV, 2), (ENV, 3), (ENV, 4), (-ENV, 5), (-ENV, 6), (STEPS, 1))
    assert first_step(after, STEPS, CODES) == 3
    assert first_step(events((TRAIN, 0), (STEPS, 1)), STEPS, CODES) == 1
    assert first_step(events((ENV, 0), (-ENV, 1)), STEPS, CODES) is None
