"""Bugs of the fold that were found once."""

from __future__ import annotations

import numpy as np
import pytest

from hotloop.profiling.recorder.call_tree import tree
from hotloop.profiling.recorder.call_tree.thread_totals import Account
from hotloop.profiling.recorder.call_tree.tree import codes_of
from hotloop.spans.registry import Span

A, B, C, D, E = 1, 2, 3, 4, 5
CODES = codes_of([Span(name, None, i + 1) for i, name in enumerate("ABCDE")])


def folded(*segments: tuple[int, list[tuple[int, int]]]) -> Account:
    """Fold segments, each its end and its events, from 1000 on."""
    account = Account(0, 0, "test", 1000)
    for end, events in segments:
        account.fold(np.array(events, np.int64).reshape(-1, 2), end, CODES, False)
    return account


def total(account: Account, *path: int) -> int:
    node = 0
    for code in path:
        node = next(
            i for i, k in enumerate(account.tree.keys) if (k.parent, k.kind, k.variant) == (node, "span", 2 * code)
        )
    return int(account.window["total_ns"][node])


def test_an_orphan_end_does_not_undo_the_end_of_a_span_from_before():
    """The end of A was dropped together with what the orphan C may have contained, and A ran on over B."""
    account = folded((1005, [(A, 1000)]), (1050, [(-A, 1010), (B, 1020), (-C, 1030), (-B, 1040)]))
    assert total(account, A) == 10
    assert total(account, B) == 20
    assert [each.code for each in account.opened] == [0]


def test_an_orphan_end_leaves_alone_what_ended_before_it():
    """Whatever becomes of the spans around an orphan end, the end of A is known and stays."""
    account = folded((1005, [(A, 1000)]), (1050, [(-A, 1010), (B, 1020), (-B, 1030), (-C, 1040)]))
    assert total(account, A) == 10
    assert int(account.window["self_ns"].sum()) == 50


def test_spans_that_overlap_keep_what_came_before_them():
    """A suspended generator's span ends after the one around it; the late end wiped out the whole segment."""
    account = folded((1100, [(C, 1000), (-C, 1010), (A, 1020), (B, 1030), (-A, 1040), (-B, 1050)]))
    assert total(account, C) == 10
    assert total(account, A) == 20
    assert total(account, A, B) == 10


@pytest.mark.parametrize("size", range(1, 9))
def test_a_full_tree_keeps_the_sum_and_closes_its_spans(monkeypatch, size):
    """Beyond the most nodes, gaps were counted twice, and spans that a cut found open stayed open for ever."""
    monkeypatch.setattr(tree, "MAX_NODES", size)
    begun = [(A, 1000), (B, 1001), (C, 1005), (-C, 1010), (D, 1012), (E, 1013)]
    account = folded((1020, begun), (1080, [(-E, 1060), (-D, 1061), (-B, 1062), (-A, 1070)]), (1090, []))
    assert int(account.window["self_ns"].sum()) == 90
    assert int(account.window["total_ns"][0]) == 90
    assert int(account.window["calls"][0]) == 0
    assert [each.code for each in account.opened] == [0]


def test_a_container_whose_children_are_switched_off_has_no_time_of_its_own():
    # It was taken for the container's own work, and made up a tenth of a DQN's loop as `other`.
    account = Account(0, 0, "test", 0)
    done = account.fold(np.array([(A, 10), (-A, 60), (A, 60), (-A, 90)], np.int64), 100, CODES, True)
    kinds = [account.tree.keys[node].kind for node in done.node.tolist()]
    assert done.self_ns[kinds.index("span")] == 0
    assert done.self_ns.sum() == 100
