"""The threads of a process: each has an account, and threads that come and go do not fill memory."""

from __future__ import annotations

import numpy as np

from hotloop.profiling.recorder.call_tree.threads import MANY_THREADS, Threads
from hotloop.profiling.recorder.feed import ThreadEvents
from hotloop.spans.registry import COUNTER_BASE


def events(serial: int, ident: int, name: str = "worker") -> ThreadEvents:
    return ThreadEvents(serial, ident, name, np.array([[COUNTER_BASE + 1, 1]], np.int64))


def test_a_log_is_the_account_of_its_thread():
    threads = Threads()
    main = threads.open(7, 0)
    threads.add_events([events(1, 7, "MainThread"), events(2, 8), events(1, 7, "MainThread")], 0)
    assert [(each.ident, each.name, each.pending_events) for each in threads.accounts] == [
        (7, "MainThread", 2),
        (8, "worker", 1),
    ]
    assert threads.accounts[0] is main


def test_two_threads_that_had_the_same_ident_are_two():
    threads = Threads()
    threads.add_events([events(1, 8, "first"), events(2, 8, "second")], 0)
    assert [each.name for each in threads.accounts] == ["first", "second"]


def test_a_thread_for_each_step_leaves_neither_accounts_nor_lost_events():
    threads = Threads()
    for serial in range(1, 5 * MANY_THREADS + 1):
        threads.add_events([events(serial, 8)], 0)
    assert len(threads.accounts) <= MANY_THREADS
    assert sum(account.pending_events for account in threads.accounts) == 5 * MANY_THREADS
    assert threads.counter_events == 5 * MANY_THREADS
