"""The threads of a process: what they wrote is drained, and those that end leave nothing behind."""

from __future__ import annotations

import threading

from hotloop.profiling.recorder.call_tree.threads import MANY_LOGS, Threads
from hotloop.spans import hot_path, registry
from hotloop.spans.registry import COUNTER_BASE


def test_a_thread_for_each_step_leaves_neither_logs_nor_lost_events():
    threads = Threads()
    threads.listen()
    try:
        for _ in range(5 * MANY_LOGS):
            one = threading.Thread(target=hot_path.note, args=(COUNTER_BASE + 1, 1))
            one.start()
            one.join()
            threads.drain(0)
        assert len(threads._logs) <= MANY_LOGS + 1
        assert sum(account.pending_events for account in threads.accounts) == 5 * MANY_LOGS
    finally:
        registry.hush()
        hot_path.listen()
