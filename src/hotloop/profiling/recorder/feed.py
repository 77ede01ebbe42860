"""What a recorder gets from the process that it records, and what it may ask of it.

The process is usually another one, and a channel of shared memory lies in between (`channel_feed`). Without a C
compiler, and in tests, it is the recorder's own (`InProcessFeed`).
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hotloop.phases import Phase
from hotloop.profiling.recorder.call_tree.fold import Ints
from hotloop.profiling.recorder.device import DeviceTimes, device_memory
from hotloop.profiling.recorder.messages import Message, counter_message, span_message
from hotloop.profiling.recorder.process_stats import ProcessStats
from hotloop.profiling.recorder.python_sampler import PythonSampler
from hotloop.profiling.recorder.samples import Taken
from hotloop.spans import hot_path, registry
from hotloop.spans.hot_path import Pauses, Tally


@dataclass(frozen=True, slots=True)
class NamedSpan:
    """The name of a span, as the recorder knows it."""

    code: int
    name: str
    phase: Phase | None
    hook: int


@dataclass(frozen=True, slots=True)
class ThreadEvents:
    """New events of one thread."""

    serial: int
    """Number of its log. Unlike the ident of a thread, it is not used again."""
    ident: int
    name: str
    pairs: Ints
    """`[n, 2]`: (code, ns) of spans, (code, amount) of counters."""


class Feed(Protocol):
    """A recorded process."""

    main_ident: int
    stats: ProcessStats
    is_elsewhere: bool
    """Whether the recorded process is another one than the recorder's."""

    def sampler_ns(self) -> int:
        """Return the CPU time of the thread that samples stacks, if it is one of the recorded process."""
        ...

    def messages(self) -> list[Message]:
        """Return new messages: names of spans and counters, printed texts, costs of wrappers, counted calls."""
        ...

    def events(self) -> list[ThreadEvents]:
        """Take the new events of all threads."""
        ...

    def samples(self) -> Taken:
        """Take the new stack samples."""
        ...

    def counted(self) -> Sequence[int]:
        """Return by span code how many calls were counted without being timed, so far."""
        ...

    def device_ns(self) -> Sequence[int]:
        """Return by span code how long a device worked, so far."""
        ...

    def within_ns(self) -> Sequence[float]:
        """Return by span code how long hooks' wrappers took within spans, so far, as ns in a tight loop."""
        ...

    def looked(self) -> Sequence[int]:
        """Return by span code at how many calls hooks looked more closely, so far; empty if at every timed one."""
        ...

    def look(self, on: bool) -> None:
        """Have hooks look more closely at the calls that they time, or no longer."""
        ...

    def count_only(self, codes: set[int]) -> None:
        """Count the calls of these spans without timing them; time all others."""
        ...

    def set_interval(self, interval_ns: int) -> None:
        """Change the mean interval between stack samples."""
        ...

    def open_window(self) -> None:
        """Count all calls of the main thread for some milliseconds."""
        ...

    def end(self) -> None:
        """Record nothing more."""
        ...


class InProcessFeed:
    """The recorder's own process."""

    is_elsewhere = False

    def __init__(self, hz: float) -> None:
        self.main_ident = threading.main_thread().ident or 0
        self.stats = ProcessStats(os.getpid(), Pauses(), device_memory)
        self.sampler = PythonSampler()
        self.inbox: deque[Message] = deque()
        self._hz = hz
        self._logs = hot_path.Logs()
        self._spans_known = self._counters_known = 0
        self._tallied: dict[Tally, int] = {}
        self._counted_before: list[int] = []
        self._device = DeviceTimes()
        self._device_ns = [0] * (registry.MAX_NAMES + 2)

    def start(self) -> None:
        """Start to record."""
        self._logs = registry.listen()
        self.stats.listen_to_pauses()
        self._tallied = {each: each.read() for each in registry.known_tallies()}
        self._counted_before = [0, *(each.tallied() for each in registry.known_spans())]
        self.sampler.start(round(1e9 / self._hz) if self._hz else 0)

    def sampler_ns(self) -> int:
        """Return 0: the recorder's own thread samples."""
        return 0

    def messages(self) -> list[Message]:
        """Return new messages."""
        spans, counters = registry.known_spans(), list(registry.known_counters().items())
        found: list[Message] = [span_message(each) for each in spans[self._spans_known :]]
        found += [counter_message(*each) for each in counters[self._counters_known :]]
        self._spans_known, self._counters_known = len(spans), len(counters)
        while self.inbox:
            found.append(self.inbox.popleft())
        return found

    def events(self) -> list[ThreadEvents]:
        """Take the new events of all threads."""
        found = []
        for log in self._logs:
            pairs = np.frombuffer(log.take(), np.int64).reshape(-1, 2)
            if len(pairs):
                found.append(ThreadEvents(log.serial, log.ident, log.name, pairs))
        return found

    def samples(self) -> Taken:
        """Take the new stack samples."""
        for each in registry.known_tallies():
            amount = each.read() - self._tallied.get(each, 0)
            if amount:
                self.sampler.note_change(each.code, amount)
                self._tallied[each] = each.read()
        return self.sampler.take()

    def counted(self) -> Sequence[int]:
        """Return by span code how many calls were counted without being timed, so far."""
        counted = [0, *(each.tallied() for each in registry.known_spans())]
        for code, before in enumerate(self._counted_before):
            counted[code] -= before
        return counted

    def device_ns(self) -> Sequence[int]:
        """Return by span code how long a device worked, so far."""
        for code, ns in self._device.poll().items():
            self._device_ns[code] += ns
        return self._device_ns

    def within_ns(self) -> Sequence[float]:
        """Return by span code how long hooks' wrappers took within spans, so far."""
        return [0.0, *(each.within_ns for each in registry.known_spans())]

    def looked(self) -> Sequence[int]:
        """Return nothing: without the C extension, hooks look more closely at each call that they time."""
        return []

    def look(self, on: bool) -> None:
        """Do nothing."""

    def count_only(self, codes: set[int]) -> None:
        """Count the calls of these spans without timing them; time all others."""
        every = registry.known_spans()
        registry.use_counted(bytes(code in codes for code in range(len(every) + 1)))

    def set_interval(self, interval_ns: int) -> None:
        """Change the mean interval between stack samples."""
        self.sampler.set_interval(interval_ns)

    def open_window(self) -> None:
        """Do nothing: calls are counted in C only."""

    def end(self) -> None:
        """Record nothing more."""
        registry.hush()
