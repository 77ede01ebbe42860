"""The stack sampler: the line each thread is at, `RecordOptions.hz` times a second, and whether it computes or waits.

A native thread reads the stacks without the interpreter's lock (`_stack_reader.c`), so the instruction that it finds is
the one that runs. Without the C extension the recorder's thread reads them with the lock held; then lines that give the
lock away are seen too often. Either way a stack is a number, and its names are copied once.
"""

from __future__ import annotations

import importlib
import sys
import threading
from array import array
from dataclasses import dataclass
from types import CodeType, FrameType, ModuleType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hotloop.clock import cpu_clock_of, now_ns
from hotloop.spans import hot_path, registry
from hotloop.spans.hot_path import Tally

MAX_DEPTH = 60
COLUMNS = ("at", "ident", "stack", "elapsed_ns", "cpu_ns", "starved_ns", "flags")
COLLECTING, STATE_KNOWN, BLOCKED, ON_FILE = 2, 4, 8, 16
"""Flags of a sample, as in `_stack_reader.c`."""

Ints = NDArray[np.int64]
CodeRow = tuple[int, str, str, int, bytes, bytes]
"""Number, file, qualified name, first line, line table and instructions of a code object."""
StackRow = tuple[int, tuple[tuple[int, int], ...]]
"""Number of a stack, and the code object and instruction (in bytes) of each frame, innermost first."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What was sampled since the last call."""

    codes: list[CodeRow]
    stacks: list[StackRow]
    samples: Ints
    """[n, 7]: `COLUMNS`. `elapsed_ns` is the time that the sample stands for; -1 for an unknown CPU time."""
    changes: Ints
    """[n, 3]: (at, counter, amount) of tallies."""
    cpu_ns: int = 0
    """CPU time of the native thread, in all."""


class Sampler(Protocol):
    """Samples all threads but the recorder's."""

    def start(self, interval_ns: int) -> None:
        """Begin to sample, at this mean interval; 0 for not at all."""
        ...

    def wait(self, until_ns: int) -> None:
        """Wait until a moment, or until woken."""
        ...

    def take(self) -> Taken:
        """Return and forget what was sampled."""
        ...

    def hold(self, on: bool) -> None:
        """Pause sampling, or go on."""
        ...

    def set_interval(self, interval_ns: int) -> None:
        """Change the mean interval."""
        ...

    def stop(self) -> None:
        """End sampling. What was sampled can still be taken."""
        ...


def new_sampler(hz: float) -> Sampler:
    """Return the best sampler that works here; the simple one if there is nothing to sample."""
    reader = _native_reader() if hz else None
    return PythonSampler() if reader is None else NativeSampler(reader)


def _native_reader() -> ModuleType | None:
    if not hot_path.ACCELERATED:
        return None
    try:
        reader = importlib.import_module("hotloop.profiling.recorder._stack_reader")
    except ImportError:
        return None
    return reader if reader.SUPPORTED else None


class NativeSampler:
    """Samples from a native thread. The process can have only one."""

    def __init__(self, reader: ModuleType) -> None:
        self._reader = reader
        self._fallback: PythonSampler | None = None
        self._followed: list[Tally] = []

    def start(self, interval_ns: int) -> None:
        """Begin to sample; where the system does not permit it, with the interpreter's lock."""
        try:
            self._reader.start(interval_ns, threading.get_ident())
            self._follow(from_now=True)
        except OSError:
            self._fallback = PythonSampler()
            self._fallback.start(interval_ns)

    def wait(self, until_ns: int) -> None:
        """Wait until a moment, or until woken."""
        (self._fallback or hot_path).wait(until_ns)

    def take(self) -> Taken:
        """Return and forget what was sampled."""
        if self._fallback is not None:
            return self._fallback.take()
        self._follow(from_now=False)
        codes, stacks, samples, changes, (_, _, cpu_ns) = self._reader.take()
        return Taken(codes, stacks, _rows(samples, len(COLUMNS)), _rows(changes, 3), cpu_ns)

    def _follow(self, from_now: bool) -> None:
        """Have the native thread watch tallies that are new. They live as long as the process."""
        for each in registry.known_tallies()[len(self._followed) :]:
            self._reader.follow(each.code, each.address, from_now)
            self._followed.append(each)

    def hold(self, on: bool) -> None:
        """Pause sampling, or go on."""
        (self._fallback or self._reader).hold(on)

    def set_interval(self, interval_ns: int) -> None:
        """Do nothing: the native thread takes nothing from the training."""

    def stop(self) -> None:
        """End sampling."""
        self._reader.stop()


class PythonSampler:
    """Samples from the recorder's thread while it waits."""

    def __init__(self) -> None:
        self._interval_ns = 0
        self._held = False
        self._due_ns = self._last_ns = 0
        self._cpu_ns: dict[int, int] = {}
        self._codes: dict[int, tuple[int, CodeType]] = {}
        """By id: the number of a code object, which is kept alive so that no other gets its id."""
        self._stacks: dict[tuple[tuple[int, int], ...], int] = {}
        self._new_codes: list[CodeRow] = []
        self._new_stacks: list[StackRow] = []
        self._samples = array("q")
        self._changes = array("q")

    def start(self, interval_ns: int) -> None:
        """Begin to sample."""
        self._interval_ns = interval_ns
        self._last_ns = now_ns()
        self._due_ns = self._last_ns + interval_ns

    def wait(self, until_ns: int) -> None:
        """Wait until a moment, or until woken; sample meanwhile."""
        while True:
            target = min(self._due_ns, until_ns) if self._interval_ns else until_ns
            hot_path.wait(target)
            now = now_ns()
            if self._interval_ns and now >= self._due_ns:
                self._due_ns = max(self._due_ns + self._interval_ns, now)
                if not self._held:
                    self._sample(now)
                    continue
            if now >= until_ns or now < target:  # reached, or woken
                return

    def _sample(self, at: int) -> None:
        elapsed, self._last_ns = at - self._last_ns, at
        me = threading.get_ident()
        for ident, frame in sys._current_frames().items():
            if ident != me:
                clock = cpu_clock_of(ident)
                cpu = clock() if clock else -1
                before = self._cpu_ns.get(ident, -1)
                ran = cpu - before if cpu >= 0 and before >= 0 else -1
                self._cpu_ns[ident] = cpu
                self._samples.extend((at, ident, self._number_stack(frame), elapsed, ran, 0, 0))
        self._read_tallies(at)

    def _read_tallies(self, at: int) -> None:
        for each in registry.known_tallies():
            if amount := each.fresh():
                self._changes.extend((at, each.code, amount))

    def _number_stack(self, frame: FrameType | None) -> int:
        places: list[tuple[int, int]] = []
        while frame is not None and len(places) < MAX_DEPTH:
            places.append((self._number_code(frame.f_code), max(frame.f_lasti, 0)))
            frame = frame.f_back
        stack = tuple(places)
        if stack not in self._stacks:
            self._stacks[stack] = len(self._stacks)
            self._new_stacks.append((self._stacks[stack], stack))
        return self._stacks[stack]

    def _number_code(self, code: CodeType) -> int:
        found = self._codes.get(id(code))
        if found is None:
            found = self._codes[id(code)] = len(self._codes), code
            names = code.co_filename, code.co_qualname
            self._new_codes.append((found[0], *names, code.co_firstlineno, code.co_linetable, code.co_code))
        return found[0]

    def take(self) -> Taken:
        """Return and forget what was sampled."""
        self._read_tallies(now_ns())
        samples, changes = _rows(self._samples.tobytes(), len(COLUMNS)), _rows(self._changes.tobytes(), 3)
        taken = Taken(self._new_codes, self._new_stacks, samples, changes)
        self._new_codes, self._new_stacks = [], []
        self._samples, self._changes = array("q"), array("q")
        return taken

    def hold(self, on: bool) -> None:
        """Pause sampling, or go on."""
        self._held = on
        self._last_ns = now_ns()
        self._cpu_ns.clear()

    def set_interval(self, interval_ns: int) -> None:
        """Change the interval."""
        if self._interval_ns:
            self._interval_ns = interval_ns

    def stop(self) -> None:
        """End sampling."""
        self._interval_ns = 0


def _rows(packed: bytes, columns: int) -> Ints:
    return np.frombuffer(packed, np.int64).reshape(-1, columns)
