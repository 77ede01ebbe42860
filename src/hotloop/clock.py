"""The only place that reads time.

Host time is monotonic nanoseconds, shared by all processes of a machine on Linux, macOS and Windows, so
that traces of several processes line up. Wall-clock time is read only to name and date a run: it may jump.
"""

from __future__ import annotations

import time
from collections.abc import Callable

now_ns: Callable[[], int] = time.perf_counter_ns
wall_ns: Callable[[], int] = time.time_ns
thread_cpu_ns: Callable[[], int] = getattr(time, "thread_time_ns", time.process_time_ns)
process_cpu_ns: Callable[[], int] = time.process_time_ns


def cpu_clock_of(thread_ident: int) -> Callable[[], int] | None:
    """Return a reader of another thread's CPU time in ns, or None where the system has none."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return None
    try:
        clock_id = time.pthread_getcpuclockid(thread_ident)
    except OSError:
        return None
    return lambda: time.clock_gettime_ns(clock_id)
