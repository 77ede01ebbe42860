"""The hot path of spans: the code that runs in the training thread when a span begins and ends.

A span writes two pairs of integers, (code, ns) when it begins and (-code, ns) when it ends, into the log of its
thread. It takes no lock, looks up no parent, and leaves no object behind but the integers. `_hot_path.c` does the
same at a third of the cost, in memory that the recorder's process maps too. It is used if it was built, unless
HOTLOOP_PURE=1; otherwise the recorder is a thread of this process.
"""

from __future__ import annotations

import _thread
import importlib
import itertools
import os
import threading
from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from hotloop.clock import now_ns as _machine_ns

_now_ns = _machine_ns


class PureLog:
    """The events of one thread: a flat list of integers, emptied from its front by the recorder."""

    __slots__ = ("events", "ident", "name", "serial")

    def __init__(self) -> None:
        self.ident = threading.get_ident()
        self.serial = next(_serials)
        self.name = threading.current_thread().name
        self.events: list[int] = []

    def __len__(self) -> int:
        return len(self.events) // 2

    def take(self) -> bytes:
        """Remove and return all events, as bytes of int64 pairs. Slicing a list is atomic, so this needs no lock."""
        n = len(self.events)
        taken = array("q", self.events[:n]).tobytes()
        del self.events[:n]
        return taken


class PureCore:
    """The part of a span that is on the hot path. `hotloop.spans.registry` builds its classes from these methods."""

    __slots__ = ("_counted", "_end", "_reads", "code", "within_ns")

    def __init__(self, code: int) -> None:
        self.code = code
        self.within_ns = 0.0
        """Time that a hook's wrapper spent inside the span, if it varies from call to call, as ns in a tight loop."""
        self._end = -code
        self._counted = itertools.count()
        self._reads = 0

    def start(self) -> None:
        """Log that the span begins now."""
        try:
            extend = _own.extend
        except AttributeError:
            extend = _open_log()
        extend((self.code, _now_ns()))

    def finish(self, kind: object, error: object, trace: object) -> None:
        """Log that the span ends now."""
        try:
            extend = _own.extend
        except AttributeError:
            extend = _open_log()
        extend((self._end, _now_ns()))

    def tally(self) -> None:
        """Count a call that is not timed."""
        next(self._counted)

    def tallied(self) -> int:
        """Return how many calls were counted without being timed. Only the recorder may call this."""
        # next() on an itertools.count is atomic, so calls from many threads are counted exactly.
        # Reading the counter also advances it, so the number of reads is subtracted.
        value = next(self._counted) - self._reads
        self._reads += 1
        return value


class PureTally:
    """Counts events that are too frequent to log one by one. Only their number is known.

    `bump()` is a bare C call, safe from any thread. The recorder reads the tally with every stack sample and assigns
    the increase to the span in which the main thread was at that moment.
    """

    __slots__ = ("_count", "_reads", "bump", "code", "name")

    def __init__(self, name: str, code: int) -> None:
        self.name = name
        self.code = code
        self._count = itertools.count()
        self._reads = 0
        self.bump: Callable[[], object] = self._count.__next__

    def read(self) -> int:
        """Return the number of calls of `bump`. Only the recorder may call this."""
        value = next(self._count) - self._reads
        self._reads += 1
        return value


def pure_idle(*unused: object) -> None:
    """Do nothing, as a span does without a recorder. Not a method, because binding one costs half as much as a call."""


_own = threading.local()
_serials = itertools.count(1)
_logs: list[PureLog] = []
_paused = False


def _open_log() -> Callable[[tuple[int, int]], None]:
    log = PureLog()
    _own.extend = log.events.extend
    _logs.append(log)
    return log.events.extend


def pure_note(code: int, amount: int) -> None:
    """Write a pair into this thread's log."""
    if _paused:
        return
    try:
        extend = _own.extend
    except AttributeError:
        extend = _open_log()
    extend((code, amount))


def pure_listen() -> None:
    """Start new logs."""
    global _own, _logs
    _own = threading.local()
    _logs = []


def pure_open_logs() -> list[PureLog]:
    """Return the logs of all threads."""
    return list(_logs)


def pure_set_paused(since_ns: int) -> None:
    """Count nothing from now on; 0: go on counting."""
    global _paused
    _paused = bool(since_ns)


def pure_use_clock(clock: Callable[[], int] | None) -> None:
    """Read the time from this function, for tests; None: from the machine's clock."""
    global _now_ns
    _now_ns = _machine_ns if clock is None else clock


class PurePauses:
    """A callback for gc.callbacks that measures the collector's pauses."""

    def __init__(self) -> None:
        self.count = self.ns = 0
        self._since = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Handle the beginning or end of a collection."""
        try:
            if phase == "start":
                self._since = _machine_ns()
            elif self._since:
                self.count += 1
                self.ns += _machine_ns() - self._since
                self._since = 0
        except KeyboardInterrupt:
            # Python discards errors in this callback, so raise the interrupt again in the main thread.
            _thread.interrupt_main()


class _Steps(threading.local):
    depth = 0
    leaf = False


_steps = _Steps()


def pure_open_step() -> int:
    """Handle the beginning of an environment step; return how many steps it is nested in."""
    _steps.leaf = True
    _steps.depth += 1
    return _steps.depth - 1


def pure_close_step() -> None:
    """Handle the end of an environment step."""
    _steps.leaf = False
    _steps.depth = max(_steps.depth - 1, 0)


def pure_is_leaf() -> bool:
    """Return whether the innermost step has called no other step."""
    return _steps.leaf


def pure_use_classes(live: type, counted: type) -> None:
    """Set the classes that spans have while they are timed and while they are only counted. Only C needs this."""


def pure_note_exit_code(path: bytes, position: int) -> None:
    """Make the process write its exit code into a file when it ends. Only C can; this version does nothing."""


def _accelerated() -> bool:
    if os.environ.get("HOTLOOP_PURE", "") not in ("", "0"):
        return False
    try:
        importlib.import_module("hotloop.spans._hot_path")
    except ImportError:
        return False
    return True


ACCELERATED = _accelerated()

if TYPE_CHECKING or not ACCELERATED:
    Core = PureCore
    Log = PureLog
    Tally = PureTally
    Pauses = PurePauses
    idle, note, listen, use_clock = pure_idle, pure_note, pure_listen, pure_use_clock
    open_logs, set_paused = pure_open_logs, pure_set_paused
    open_step, close_step, is_leaf, use_classes = pure_open_step, pure_close_step, pure_is_leaf, pure_use_classes
    note_exit_code = pure_note_exit_code
    Step: Callable[[Callable, dict, Callable, tuple[int, int, int, int]], Callable] | None = None
    """Wraps an environment's `step`: (function, spans by class, tally, counters). Exists only in C."""
else:
    from hotloop.spans._hot_path import (  # noqa: F401
        Core,
        Log,
        Pauses,
        Step,
        Tally,
        close_step,
        idle,
        is_leaf,
        listen,
        note,
        note_exit_code,
        open_logs,
        open_step,
        set_paused,
        use_classes,
        use_clock,
    )


class Logs:
    """The logs of all threads that have written events since `listen`."""

    def __iter__(self) -> Iterator[Log]:
        return iter(open_logs())

    def __len__(self) -> int:
        return len(open_logs())

    def __getitem__(self, index: int) -> Log:
        return open_logs()[index]
