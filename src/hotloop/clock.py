"""The only place that reads time.

Host time is monotonic nanoseconds, shared by all processes of a machine on Linux, macOS and Windows, so traces of
several processes line up. Wall-clock time is read only to name and date a run, because it may jump. Device time comes
from device events, never from a host clock around work that the device does later.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, Self

now_ns: Callable[[], int] = time.perf_counter_ns
wall_ns: Callable[[], int] = time.time_ns
thread_cpu_ns: Callable[[], int] = getattr(time, "thread_time_ns", time.process_time_ns)
process_cpu_ns: Callable[[], int] = time.process_time_ns


def cpu_clock_of(thread_ident: int) -> Callable[[], int] | None:
    """Return a function that reads another thread's CPU time in ns, or None if the system has none."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return None
    try:
        clock_id = time.pthread_getcpuclockid(thread_ident)
    except OSError:
        return None
    return lambda: time.clock_gettime_ns(clock_id)


class DeviceEvent(Protocol):
    """The methods of a CUDA event that are used."""

    def record(self) -> None:
        """Record the time when the device reaches this point."""
        ...

    def query(self) -> bool:
        """Return whether the device has reached it, without waiting."""
        ...

    def elapsed_time(self, later: Self) -> float:
        """Return the device time in ms from this event to a later one."""
        ...


class DeviceClock:
    """Measures device time with pooled events, which are read only after the device has passed them.

    Nothing here waits for the device, so measuring does not change how host and device overlap.
    """

    def __init__(self, make_event: Callable[[], DeviceEvent], most: int = 4096) -> None:
        self._make_event = make_event
        self._most = most
        self._free: deque[DeviceEvent] = deque()
        self._pending: deque[tuple[int, DeviceEvent, DeviceEvent]] = deque()
        self._begun = threading.local()

    def begin(self, code: int) -> None:
        """Record the device time before the work of a span."""
        stack = self._begun.__dict__.setdefault("stack", [])
        event = self._take()
        event.record()
        stack.append((code, event))

    def end(self, code: int) -> None:
        """Record the device time after the work of a span. Ignored if `begin` was not called."""
        stack = self._begun.__dict__.get("stack")
        if not stack or stack[-1][0] != code:
            return
        _, first = stack.pop()
        if len(self._pending) >= self._most:
            self._free.append(first)
            return
        last = self._take()
        last.record()
        self._pending.append((code, first, last))

    def _take(self) -> DeviceEvent:
        try:  # a check beforehand would not help: another thread could take the event in between
            return self._free.popleft()
        except IndexError:
            return self._make_event()

    def poll(self) -> dict[int, int]:
        """Return the device time in ns, by code, of the work that the device has finished."""
        done: dict[int, int] = {}
        while self._pending and self._pending[0][2].query():
            code, first, last = self._pending.popleft()
            done[code] = done.get(code, 0) + round(first.elapsed_time(last) * 1e6)
            self._free += (first, last)
        return done
