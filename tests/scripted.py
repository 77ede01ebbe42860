"""A recorder without its thread and with a simulated clock, so that what it writes is exact.

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
from hotloop.profiling.recorder.overhead import estimate
from hotloop.profiling.recorder.record_options import RecordOptions
from hotloop.profiling.recorder.recorder import Recorder
from hotloop.profiling.trace.model import FORMAT_VERSION
from hotloop.profiling.trace.stream_store import write_json
from hotloop.spans import hot_path, registry
from hotloop.spans.registry import Span

START_NS = 7_000_000_000


class Run:
    """A run with a simulated clock."""

    def __init__(self, folder: Path, options: RecordOptions, span_cost_ns: int) -> None:
        self.now = START_NS
        self.cost = span_cost_ns
        self.recorder = Recorder(folder / "process", options)
        governor = self.recorder._governor
        governor.tight_ns = span_cost_ns / 3.0
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
        self.recorder._second(self.now)

    def stop(self) -> None:
        self.recorder.stop()


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
    process = {
        "pid": os.getpid(),
        "parent_pid": 1,
        "main": True,
        "clock_ns": START_NS,
        "wall_ns": 1,
        "argv": [],
    }
    write_json(folder / "process" / "process.json", process)
    monkeypatch.setattr(Recorder, "_run", lambda self: None)
    hot_path.use_clock(run.read)
    monkeypatch.setattr(recorder_module, "now_ns", run.read)
    run.recorder.start()
    try:
        yield run
    finally:
        run.stop()
        hot_path.use_clock(None)
