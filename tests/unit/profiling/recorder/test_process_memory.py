"""Resident memory and page faults of this process."""

from __future__ import annotations

import mmap

import psutil

from hotloop.profiling.recorder.process_memory import MemoryReader, page_faults


def test_resident_memory_is_what_the_system_says():
    reader = MemoryReader()
    seen, told = reader.read().rss_bytes, psutil.Process().memory_info().rss
    assert abs(seen - told) < 32 << 20
    # Fresh pages: the allocator may hand out memory that is resident already.
    with mmap.mmap(-1, 96 << 20) as block:
        block.write(b"x" * (96 << 20))
        assert reader.read().rss_bytes > seen + (64 << 20)


def test_it_works_where_there_is_no_proc(monkeypatch):
    def refuse(*args, **kwargs):
        raise FileNotFoundError

    reader = MemoryReader()
    monkeypatch.setattr("hotloop.profiling.recorder.process_memory.open", refuse, raising=False)
    seen, told = reader.read(), psutil.Process().memory_info()
    assert abs(seen.rss_bytes - told.rss) < 32 << 20
    assert abs(seen.reserved_bytes - told.vms) < 64 << 20


def test_a_buffer_is_reserved_at_once_and_resident_as_it_fills():
    reader = MemoryReader()
    before = reader.read()
    with mmap.mmap(-1, 256 << 20) as block:
        made = reader.read()
        assert made.reserved_bytes - before.reserved_bytes >= 256 << 20
        assert made.rss_bytes - before.rss_bytes < 128 << 20
        block.write(b"x" * len(block))
        filled = reader.read()
    assert filled.rss_bytes - made.rss_bytes > 192 << 20
    assert filled.reserved_bytes - made.reserved_bytes < 64 << 20


def test_page_faults_grow():
    before, _ = page_faults()
    # Fresh pages of the system's: a large block of malloc's may be one that was used before.
    with mmap.mmap(-1, 32 << 20) as block:
        block.write(b"x" * len(block))
        after, _ = page_faults()
    assert after > before
