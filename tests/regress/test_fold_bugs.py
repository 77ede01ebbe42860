"""Regression tests for fixed bugs of the fold."""

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
    """Fold segments, each given as its end and its events, starting at time 1000."""
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


def test_an_orphan_end_does_not_reopen_an_earlier_span():
    """The end of A was dropped with everything the orphan C might contain, so A continued through B."""
    account = folded((1005, [(A, 1000)]), (1050, [(-A, 1010), (B, 1020), (-C, 1030), (-B, 1040)]))
    assert total(account, A) == 10
    assert total(account, B) == 20
    assert [each.code for each in account.opened] == [0]


def test_an_orphan_end_does_not_change_spans_that_ended_before_it():
    """The end of A is known and must be kept, however the spans around the orphan end are resolved."""
    account = folded((1005, [(A, 1000)]), (1050, [(-A, 1010), (B, 1020), (-B, 1030), (-C, 1040)]))
    assert total(account, A) == 10
    assert int(account.window["self_ns"].sum()) == 50


def test_overlapping_spans_keep_earlier_events():
    """A suspended generator's span ends after its parent; the late end discarded the whole segment."""
    account = folded((1100, [(C, 1000), (-C, 1010), (A, 1020), (B, 1030), (-A, 1040), (-B, 1050)]))
    assert total(account, C) == 10
    assert total(account, A) == 20
    assert total(account, A, B) == 10


@pytest.mark.parametrize("size", range(1, 9))
def test_a_full_tree_still_adds_up_and_closes_its_spans(monkeypatch, size):
    """Beyond the node limit, gaps were counted twice, and spans open at a cut were never closed."""
    monkeypatch.setattr(tree, "MAX_NODES", size)
    begun = [(A, 1000), (B, 1001), (C, 1005), (-C, 1010), (D, 1012), (E, 1013)]
    account = folded((1020, begun), (1080, [(-E, 1060), (-D, 1061), (-B, 1062), (-A, 1070)]), (1090, []))
    assert int(account.window["self_ns"].sum()) == 90
    assert int(account.window["total_ns"][0]) == 90
    assert int(account.window["calls"][0]) == 0
    assert [each.code for each in account.opened] == [0]


def test_a_container_with_disabled_children_has_no_self_time():
    # It was counted as the container's own work: a tenth of a DQN loop was `other`.
    account = Account(0, 0, "test", 0)
    done = account.fold(np.array([(A, 10), (-A, 60), (A, 60), (-A, 90)], np.int64), 100, CODES, True)
    kinds = [account.tree.keys[node].kind for node in done.node.tolist()]
    assert done.self_ns[kinds.index("span")] == 0
    assert done.self_ns.sum() == 100
