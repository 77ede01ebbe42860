"""The hot path of spans: the code that runs in the training thread when a span begins and ends.

A span writes two pairs of integers, (code, ns) when it begins and (-code, ns) when it ends, into the log of its
thread. It takes no lock, looks up no parent, and leaves no object behind but the integers. `_hot_path.c` does the
same at a third of the cost and is used if it was built, unless HOTLOOP_PURE=1.
"""

from __future__ import annotations

import _thread
import importlib
import itertools
import os
import sys
import threading
from array import array
from collections.abc import Callable
from types import CodeType, FrameType
from typing import TYPE_CHECKING

from hotloop.clock import cpu_clock_of
from hotloop.clock import now_ns as _machine_ns

_now_ns = _machine_ns
MAX_DEPTH = 60
Place = tuple[CodeType, int, int | None]
"""The position of a stack frame: its code object, the instruction, the line."""


class PureLog:
    """The events of one thread: a flat list of integers, emptied from its front by the recorder."""

    __slots__ = ("events", "ident", "name")

    def __init__(self) -> None:
        self.ident = threading.get_ident()
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

    __slots__ = ("_counted", "_end", "_reads", "code")

    def __init__(self, code: int) -> None:
        self.code = code
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

    __slots__ = ("_count", "_last_read", "_reads", "bump", "code", "name")

    def __init__(self, name: str, code: int) -> None:
        self.name = name
        self.code = code
        self._count = itertools.count()
        self._reads = self._last_read = 0
        self.bump: Callable[[], object] = self._count.__next__

    def read(self) -> int:
        """Return the number of calls of `bump`. Only the recorder may call this."""
        value = next(self._count) - self._reads
        self._reads += 1
        return value

    def fresh(self) -> int:
        """Return the number of calls of `bump` since the last call of this method."""
        before, self._last_read = self._last_read, self.read()
        return self._last_read - before


def pure_idle(*unused: object) -> None:
    """Do nothing, as a span does without a recorder. Not a method, because binding one costs half as much as a call."""


_own = threading.local()
_woken = threading.Lock()
_woken.acquire()
_held = False
_logs: list[PureLog] = []


def _open_log() -> Callable[[tuple[int, int]], None]:
    log = PureLog()
    _own.extend = log.events.extend
    _logs.append(log)
    return log.events.extend


def pure_note(code: int, amount: int) -> None:
    """Write a pair into this thread's log."""
    try:
        extend = _own.extend
    except AttributeError:
        extend = _open_log()
    extend((code, amount))


def pure_listen() -> list[PureLog]:
    """Start new logs; return the list to which each thread's log will be added."""
    global _own, _logs
    _own = threading.local()
    _logs = []
    return _logs


def pure_use_clock(clock: Callable[[], int] | None) -> None:
    """Read the time from this function, for tests; None: from the machine's clock."""
    global _now_ns
    _now_ns = _machine_ns if clock is None else clock


def pure_watch(
    until_ns: int,
    tick_ns: int,
    most: int,
    numbers: dict[int, int],
    name_stack: Callable[[list[Place], int], int],
    tallies: list[PureTally],
) -> tuple[list[tuple[int, int, int, int]], list[tuple[int, int, int]]]:
    """Sample the stacks of all other threads every tick, until a given time, a wake-up, or full logs.

    Args:
        until_ns: When to return.
        tick_ns: Time between two samples; 0 for no samples.
        most: Return early if more events than this wait in the logs.
        numbers: Numbers of the stacks known so far, by key.
        name_stack: Returns the number of a new stack, given its places and key.
        tallies: Tallies to read with each sample.

    Returns:
        Samples as (time, thread, stack, CPU time of the thread or -1), and increases of tallies as (time, code,
        amount).
    """
    looks: list[tuple[int, int, int, int]] = []
    bumps: list[tuple[int, int, int]] = []
    me = threading.get_ident()
    due = _machine_ns() + tick_ns if tick_ns else until_ns
    while (now := _machine_ns()) < until_ns:
        # A bare lock, because the hooks time threading.Event and time.sleep.
        if _woken.acquire(timeout=max(min(due, until_ns) - now, 0) / 1e9):
            break
        at = _machine_ns()
        if tick_ns and at >= due:
            due = max(due + tick_ns, at)
            if not _held:
                for ident, frame in sys._current_frames().items():
                    if ident == me:
                        continue
                    clock, key = cpu_clock_of(ident), key_of(frame)
                    number = numbers[key] if key in numbers else name_stack(places_of(frame), key)
                    looks.append((at, ident, number, clock() if clock else -1))
                bumps += [(at, each.code, n) for each in tallies if (n := each.fresh())]
        if sum(map(len, _logs)) > most:
            break
    return looks, bumps


def pure_wake() -> None:
    """Make the running `watch` return, or the next one if none is running."""
    if _woken.locked():
        _woken.release()


def pure_hold(on: bool) -> None:
    """Stop sampling stacks, or start again."""
    global _held
    _held = on


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


def key_of(frame: FrameType | None) -> int:
    """Return a number that identifies a stack: a hash of the code and instruction of each frame."""
    words: list[int] = []
    while frame is not None and len(words) < 2 * MAX_DEPTH:
        words += (id(frame.f_code), frame.f_lasti)
        frame = frame.f_back
    return hash(tuple(words))


def places_of(frame: FrameType | None) -> list[Place]:
    """Return the position of each frame of a stack, innermost first."""
    found: list[Place] = []
    while frame is not None and len(found) < MAX_DEPTH:
        found.append((frame.f_code, frame.f_lasti, frame.f_lineno))
        frame = frame.f_back
    return found


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
    watch, wake, hold = pure_watch, pure_wake, pure_hold
    idle, note, listen, use_clock = pure_idle, pure_note, pure_listen, pure_use_clock
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
        hold,
        idle,
        is_leaf,
        listen,
        note,
        note_exit_code,
        open_step,
        use_classes,
        use_clock,
        wake,
        watch,
    )
