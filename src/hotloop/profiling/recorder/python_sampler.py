"""The stack sampler for a process without the C extension: it takes samples in the recorder's thread while that waits.

It needs the interpreter's lock, so lines that give the lock away are seen too often. `_stack_reader.c` does not.
"""

from __future__ import annotations

import sys
import threading
from array import array
from types import CodeType, FrameType

from hotloop.clock import cpu_clock_of, now_ns
from hotloop.profiling.recorder.samples import MAX_DEPTH, TALLY, CodeRow, StackRow, Taken, taken_from


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
        self._woken = threading.Lock()
        self._woken.acquire()

    def start(self, interval_ns: int) -> None:
        """Begin to sample."""
        self._interval_ns = interval_ns
        self._last_ns = now_ns()
        self._due_ns = self._last_ns + interval_ns

    def wait(self, until_ns: int) -> None:
        """Wait until a moment, or until woken; sample meanwhile."""
        while True:
            target = min(self._due_ns, until_ns) if self._interval_ns else until_ns
            # A bare lock, because the hooks time threading.Event and time.sleep.
            woken = self._woken.acquire(timeout=max(target - now_ns(), 0) / 1e9)
            now = now_ns()
            if self._interval_ns and now >= self._due_ns:
                self._due_ns = max(self._due_ns + self._interval_ns, now)
                if not self._held:
                    self._sample(now)
                    continue
            if now >= until_ns or woken:
                return

    def wake(self) -> None:
        """End the wait that is going on, or the next one."""
        if self._woken.locked():
            self._woken.release()

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

    def note_change(self, code: int, amount: int) -> None:
        """Note that a tally has grown."""
        self._samples.extend((now_ns(), TALLY, code, amount, 0, 0, 0))

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
        taken = taken_from(self._new_codes, self._new_stacks, self._samples.tobytes())
        self._new_codes, self._new_stacks, self._samples = [], [], array("q")
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
