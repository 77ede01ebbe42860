"""A recorder in this process with a simulated clock, so that what it writes is exact.

with scripted_run(folder, monkeypatch) as run:
    run.during("env.step", 100)
    run.second()
trace = load(folder)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hotloop.profiling.recorder import recorder as recorder_module
from hotloop.profiling.recorder import thread_recorder
from hotloop.profiling.recorder.messages import Message
from hotloop.profiling.recorder.overhead import IN_PLACE, estimate
from hotloop.profiling.recorder.record_options import RecordOptions
from hotloop.profiling.recorder.recorder import Recorder
from hotloop.profiling.recorder.thread_recorder import ThreadRecorder
from hotloop.profiling.trace.model import FORMAT_VERSION
from hotloop.profiling.trace.stream_store import write_json
from hotloop.spans import hot_path, registry
from hotloop.spans.registry import Span

START_NS = 7_000_000_000
PROCESS: Message = {
    "pid": os.getpid(),
    "parent_pid": 1,
    "main": True,
    "clock_ns": START_NS,
    "wall_ns": 1,
    "name": "MainProcess",
    "argv": [],
}


class Run:
    """A run with a simulated clock."""

    def __init__(self, folder: Path, options: RecordOptions, span_cost_ns: int) -> None:
        self.now = START_NS
        self.cost = span_cost_ns
        self.process = ThreadRecorder(folder, folder / "process", options, main=True)
        """Without its thread: the test does what is due."""
        self.feed = self.process._feed
        self.recorder = self.process._recorder = Recorder(folder / "process", options, self.feed, PROCESS)
        governor = self.recorder._governor
        governor.tight_ns = span_cost_ns / IN_PLACE
        governor.cost = estimate([], governor.tight_ns)
        governor._fine = set()

    def read(self) -> int:
        return self.now

    def spend(self, ns: int) -> None:
        self.now += ns

    def during(self, what: Span | str, ns: int, *counted: str) -> None:
        """Spend time in a span, and count inside it."""
        with self.open(what):
            for name in counted:
                registry.count(name)
            self.now += ns

    @contextmanager
    def open(self, what: Span | str) -> Iterator[None]:
        """A span whose overhead lies half inside it and half before and after it."""
        each = registry.span(what) if isinstance(what, str) else what
        quarter = self.cost // 4
        self.now += quarter
        with each:
            self.now += quarter
            yield
            self.now += quarter
        self.now += quarter

    def second(self) -> None:
        """Do what the recorder does once a second."""
        self.recorder._take_new()
        self.recorder._second(self.now)

    def start(self) -> None:
        self.feed.start()
        self.recorder.start(self.now)

    def stop(self) -> None:
        registry.hush()
        self.recorder.stop(self.now)
        hot_path.listen()


@contextmanager
def scripted_run(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: RecordOptions | None = None,
    span_cost_ns: int = 0,
) -> Iterator[Run]:
    """Record what the test does with the run into `folder`, starting at `START_NS`."""
    manifest = {
        "format": FORMAT_VERSION,
        "name": "scripted",
        "state": "finished",
        "started_unix_ns": 1,
        "pid": 1,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "run.json", manifest)
    run = Run(folder, options or RecordOptions(hz=0), span_cost_ns)
    hot_path.use_clock(run.read)
    for module in (recorder_module, thread_recorder):
        monkeypatch.setattr(module, "now_ns", run.read)
    run.start()
    try:
        yield run
    finally:
        run.stop()
        hot_path.use_clock(None)
