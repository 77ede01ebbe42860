"""Fails tests that leave something running or allocated, and makes Ctrl-C work in every child process.

A recorder, thread, process or shared-memory block that outlives its test makes later tests fail for no
reason of their own, and is what a user would be left with after a crash.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from hotloop.spans import registry

SHARED_MEMORY = Path("/dev/shm")
DESCRIPTORS = Path("/proc/self/fd")
OUR_MEMORY = "/memfd:hotloop"
"""A shared replay is an anonymous file in memory, without a name in any directory."""
GRACE_S = 3.0
POLL_S = 0.05
# The standard library keeps these for the life of the interpreter.
LASTING_PROCESSES = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


@dataclass(frozen=True)
class Belongings:
    """Resources that a test process holds at a given time."""

    recording: bool
    threads: frozenset[threading.Thread]
    processes: frozenset[psutil.Process]
    blocks: frozenset[str]
    memories: frozenset[str]


def take_stock() -> Belongings:
    """Return the resources that this process holds now."""
    return Belongings(
        recording=registry.recording(),
        threads=frozenset(t for t in threading.enumerate() if not t.daemon or "hotloop" in t.name),
        processes=frozenset(p for p in psutil.Process().children(recursive=True) if not _lasts(p)),
        blocks=frozenset(p.name for p in SHARED_MEMORY.iterdir()) if SHARED_MEMORY.is_dir() else frozenset(),
        memories=frozenset(_memories()),
    )


def left_behind(before: Belongings, after: Belongings) -> list[str]:
    """Describe each resource that is held now and was not before."""
    found = ["a recorder that still records"] if after.recording and not before.recording else []
    found += [f"thread {t.name!r}" for t in after.threads - before.threads]
    found += [f"process {p.pid}: {_command(p)}" for p in after.processes - before.processes]
    found += [f"shared-memory block {name}" for name in _ours(after.blocks - before.blocks)]
    found += [f"shared memory {name}" for name in sorted(after.memories - before.memories)]
    return found


def _memories() -> Iterator[str]:
    """Yield the inodes of our open memory files: descriptor numbers would be reused."""
    if not DESCRIPTORS.is_dir():
        return
    for each in DESCRIPTORS.iterdir():
        try:
            if os.readlink(each).startswith(OUR_MEMORY):
                yield f"{OUR_MEMORY} (inode {each.stat().st_ino})"
        except OSError:
            continue  # closed since, like the descriptor of the listing itself


def _lasts(process: psutil.Process) -> bool:
    return any(name in _command(process) for name in LASTING_PROCESSES)


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()) or process.status()
    except psutil.Error:
        return "gone"


def _ours(blocks: frozenset[str]) -> list[str]:
    """Drop blocks that other programs on this machine have created since: those they have mapped."""
    if not blocks:
        return []
    us = psutil.Process()
    family = {us.pid, *(p.pid for p in us.children(recursive=True))}
    foreign = ""
    for process in psutil.process_iter():
        if process.pid not in family:
            try:
                foreign += Path(f"/proc/{process.pid}/maps").read_text()
            except OSError:
                continue  # it has ended, or belongs to another user
    return sorted(name for name in blocks if f"{SHARED_MEMORY}/{name}" not in foreign)


@pytest.fixture(scope="session", autouse=True)
def children_can_be_interrupted() -> Iterator[None]:
    """Undo what a shell does to a background job: SIGINT ignored, which every child inherits through exec."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A temporary folder for scripts that open Unix sockets in it: socket paths are limited to 107 bytes."""
    with tempfile.TemporaryDirectory(dir="/tmp" if os.path.isdir("/tmp") else None) as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    before = take_stock()
    yield
    found = left_behind(before, take_stock())
    for _ in range(int(GRACE_S / POLL_S)):
        if not found:
            return
        # Stopped resources may need a moment to end; dropped ones need the garbage collector.
        gc.collect()
        multiprocessing.active_children()
        time.sleep(POLL_S)
        found = left_behind(before, take_stock())
    if found:
        pytest.fail("the test left behind: " + "; ".join(found))
