"""Torch operators over some iterations, from torch's own profiler, for `--ops`.

Its events are summed up every half second and dropped, so that neither memory nor file grows with the window.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

from hotloop.clock import now_ns
from hotloop.json_types import Json

if TYPE_CHECKING:
    from torch.profiler import profile

PART_NS = 500_000_000
MOST_OPERATORS = 500
QUIETLY = {"KINETO_LOG_LEVEL": "6"}
"""Read once by torch's profiler, which otherwise prints two lines each time it is used."""


class Operators:
    """Sums of the operators that torch's profiler sees between `begin` and `end`, in the calling thread."""

    def __init__(self) -> None:
        self._torch = sys.modules.get("torch")
        self._profiler: profile | None = None
        self._since_ns = self._wall_ns = 0
        self._sums: dict[str, list[int]] = {}
        self._events = 0

    def begin(self) -> None:
        """Start torch's profiler.

        Raises:
            RuntimeError: Torch is not imported, or its profiler is in use.
        """
        if self._torch is None:
            raise RuntimeError("the script had not imported torch by then")
        added = QUIETLY.keys() - os.environ.keys()
        os.environ.update({name: QUIETLY[name] for name in added})
        try:
            self._start(self._torch)
        finally:
            for name in added:
                del os.environ[name]

    def step(self) -> None:
        """Sum up the events so far, if enough time has passed for there to be many."""
        if self._torch is not None and now_ns() - self._since_ns >= PART_NS:
            self._take()
            self._start(self._torch)

    def end(self) -> dict[str, Json]:
        """Stop torch's profiler; return the sums, as JSON."""
        self._take()
        ranked = sorted(self._sums.items(), key=lambda item: -item[1][1])[:MOST_OPERATORS]
        names = ("calls", "self_ns", "total_ns", "device_ns")
        rows = [{"name": name} | dict(zip(names, sums, strict=True)) for name, sums in ranked]
        return {"wall_ns": self._wall_ns, "events": self._events, "operators": rows}

    def _start(self, torch: ModuleType) -> None:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        # Only the events of one part are kept, so that those of earlier parts are freed.
        started: profile = torch.profiler.profile(activities=activities, acc_events=False)
        started.start()
        self._profiler = started
        self._since_ns = now_ns()

    def _take(self) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        self._wall_ns += now_ns() - self._since_ns
        profiler.stop()
        for name, self_ns, total_ns, device_ns in _calls(profiler):
            sums = self._sums.setdefault(name, [0, 0, 0, 0])
            for i, value in enumerate((0 if device_ns else 1, self_ns, total_ns, device_ns)):
                sums[i] += value
            self._events += 1


def _calls(profiler: profile) -> Iterator[tuple[str, int, int, int]]:
    """Yield name, self time, total time and device time of each call, in ns.

    Uses the profiler's raw events, because making its own tables takes 0.1 ms per event, longer than the training.
    """
    on_host: dict[int, list[tuple[int, int, str]]] = {}
    results = profiler.profiler.kineto_results if profiler.profiler is not None else None
    for event in results.events() if results is not None else ():
        if event.device_type().name != "CPU":
            yield event.name(), 0, 0, event.duration_ns()
        elif not event.is_async():
            begin, length = event.start_ns(), event.duration_ns()
            on_host.setdefault(event.start_thread_id(), []).append((begin, -length, event.name()))
    for calls in on_host.values():
        for name, self_ns, total_ns in nested(sorted(calls)):
            yield name, self_ns, total_ns, 0


def nested(calls: list[tuple[int, int, str]]) -> Iterator[tuple[str, int, int]]:
    """Yield name, self time and total time of one thread's calls, which may be nested.

    Args:
        calls: Begin, negative length and name, sorted: a call comes before those in it. A call in one of the same
            name adds nothing to that name's total.
    """
    opened: list[tuple[int, str, int]] = []
    inside: list[int] = []
    depth: Counter[str] = Counter()

    def close() -> tuple[str, int, int]:
        _, name, length = opened.pop()
        depth[name] -= 1
        return name, max(length - inside.pop(), 0), 0 if depth[name] else length

    for begin, negative, name in calls:
        while opened and opened[-1][0] <= begin:
            yield close()
        if inside:
            inside[-1] -= negative
        opened.append((begin - negative, name, -negative))
        inside.append(0)
        depth[name] += 1
    while opened:
        yield close()
