"""What is read of the process besides its spans."""

from __future__ import annotations

import gc
import mmap
import threading

import pytest

from hotloop.profiling.recorder.call_tree.thread_totals import Account
from hotloop.profiling.recorder.process_stats import Vitals
from hotloop.spans import registry


def new_pages(size: int) -> mmap.mmap:
    """Memory that nothing has touched before (a bytearray may be given pages that were freed), each page touched."""
    pages = mmap.mmap(-1, size)
    for at in range(0, size, mmap.PAGESIZE):
        pages[at] = 1
    return pages


@pytest.fixture
def vitals():
    made = Vitals()
    yield made
    made.close()


@pytest.fixture
def account() -> Account:
    return Account(0, threading.get_ident(), "main", 0)


def test_a_tally_counts_from_many_threads_and_reading_changes_nothing():
    tally = registry.tally("vitals.threads")
    before = tally.read()
    threads = [threading.Thread(target=lambda: [tally.bump() for _ in range(1000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tally.read() - before == 4000
    assert tally.read() - before == 4000
    assert registry.tally("vitals.threads") is tally


def test_pauses_of_the_collector_are_counted_and_timed(vitals):
    before = vitals.totals()
    gc.collect()
    gc.collect()
    after = vitals.totals()
    assert after["gc_pauses"] - before["gc_pauses"] >= 2
    assert after["gc_pause_ns"] > before["gc_pause_ns"]


def test_after_closing_the_collector_is_left_alone():
    made = Vitals()
    listeners = len(gc.callbacks)
    made.close()
    assert len(gc.callbacks) == listeners - 1
    made.close()


def test_growth_of_memory_is_noted(vitals, account):
    vitals.read_memory(1, account)
    held = new_pages(64 << 20)
    vitals.read_memory(2, account)
    grown = account.rises[1][1]
    assert grown > 32 << 20
    assert account.rises[1][2] == account.rises[0][2] + grown
    held.close()


def test_page_faults_and_cpu_time_only_rise(vitals):
    before = vitals.totals()
    held = new_pages(16 << 20)
    after = vitals.totals()
    assert after["minor_faults"] > before["minor_faults"]
    assert after["cpu_ns"] > before["cpu_ns"]
    assert after["starved_ns"] >= before["starved_ns"] >= 0
    held.close()
