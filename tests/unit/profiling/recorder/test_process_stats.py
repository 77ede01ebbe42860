"""What is read of a process besides its spans: memory, CPU time, page faults, pauses of the garbage collector."""

from __future__ import annotations

import gc
import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import psutil
import pytest

from hotloop.profiling.recorder.process_stats import ProcessStats
from hotloop.spans import registry
from hotloop.spans.hot_path import Pauses, listen


def new_pages(size: int) -> mmap.mmap:
    """Memory that nothing has touched before (a bytearray may be given pages that were freed), each page touched."""
    pages = mmap.mmap(-1, size)
    for at in range(0, size, mmap.PAGESIZE):
        pages[at] = 1
    return pages


@pytest.fixture
def stats() -> Iterator[ProcessStats]:
    made = ProcessStats(os.getpid(), Pauses())
    made.listen_to_pauses()
    yield made
    made.close()


def test_a_tally_counts_from_many_threads_and_reading_changes_nothing():
    listen()
    tally = registry.tally("stats.threads")
    before = tally.read()
    threads = [threading.Thread(target=lambda: [tally.bump() for _ in range(1000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tally.read() - before == 4000
    assert tally.read() - before == 4000
    assert registry.tally("stats.threads") is tally


def test_pauses_of_the_collector_are_counted_and_timed(stats):
    before = stats.totals()
    gc.collect()
    gc.collect()
    after = stats.totals()
    assert after["gc_pauses"] - before["gc_pauses"] >= 2
    assert after["gc_pause_ns"] > before["gc_pause_ns"]


def test_after_closing_the_collector_is_left_alone():
    listeners = len(gc.callbacks)
    made = ProcessStats(os.getpid(), Pauses())
    made.listen_to_pauses()
    assert len(gc.callbacks) == listeners + 1
    made.close()
    assert len(gc.callbacks) == listeners
    made.close()


def test_resident_memory_is_what_the_system_says(stats):
    seen = stats.memory().rss_bytes
    assert abs(seen - psutil.Process().memory_info().rss) < 32 << 20
    held = new_pages(96 << 20)
    assert stats.memory().rss_bytes > seen + (64 << 20)
    held.close()


def test_a_buffer_is_reserved_at_once_and_resident_as_it_fills(stats):
    before = stats.memory()
    with mmap.mmap(-1, 256 << 20) as block:
        made = stats.memory()
        assert made.reserved_bytes - before.reserved_bytes >= 256 << 20
        assert made.rss_bytes - before.rss_bytes < 128 << 20
        block.write(b"x" * len(block))
        filled = stats.memory()
    assert filled.rss_bytes - made.rss_bytes > 192 << 20
    assert filled.reserved_bytes - made.reserved_bytes < 64 << 20


def test_it_works_where_there_is_no_proc(stats, monkeypatch):
    def refuse(*args: object, **kwargs: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr("hotloop.profiling.recorder.process_stats.open", refuse, raising=False)
    monkeypatch.setattr("os.path.isdir", lambda path: False)
    seen, wanted = stats.memory(), psutil.Process().memory_info()
    assert abs(seen.rss_bytes - wanted.rss) < 32 << 20
    assert abs(seen.reserved_bytes - wanted.vms) < 64 << 20


def test_page_faults_and_cpu_time_only_rise(stats):
    before = stats.totals()
    held = new_pages(16 << 20)
    after = stats.totals()
    assert after["minor_faults"] > before["minor_faults"]
    assert after["cpu_ns"] > before["cpu_ns"]
    assert after["starved_ns"] >= before["starved_ns"] >= 0
    held.close()


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads another process through /proc")
def test_another_process_is_read_and_its_last_values_stay_when_it_has_ended():
    work = "import sys\nsum(range(10**6))\nprint(flush=True)\nsys.stdin.readline()\n"
    with subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdin is not None
        child.stdout.readline()
        stats = ProcessStats(child.pid, Pauses(), folder=f"/proc/{child.pid}")
        totals, memory = stats.totals(), stats.memory()
        assert totals["cpu_ns"] > 0 and totals["minor_faults"] > 0
        assert memory.rss_bytes > 1 << 20
        child.stdin.close()
    assert stats.totals() == totals
    assert stats.memory() == memory
