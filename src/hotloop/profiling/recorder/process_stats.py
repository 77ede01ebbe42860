"""What the system says about a process: memory, CPU time, page faults, time without a core. Cheap to read."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import psutil

NS_PER_TICK = 1_000_000_000 // (os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100)
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
CPU_CLOCK = 2
"""Kind of the Linux clock that shows how long a process has run; the rest of its id is made from the process id."""


class PauseCounts(Protocol):
    """The garbage collector's pauses so far."""

    @property
    def count(self) -> int:
        """How many there were."""
        ...

    @property
    def ns(self) -> int:
        """How long they took."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """Memory at one moment."""

    rss_bytes: int
    reserved_bytes: int = 0
    """Virtual memory, used or not: a buffer allocated at the start becomes resident only as it fills."""
    gpu_bytes: int = 0
    gpu_busy_percent: int = -1


class ProcessStats:
    """Reads a process's statistics. When the process has ended, the last values stay.

    Args:
        pid: Of the process.
        pauses: Of its garbage collector.
        gpu: Returns its device's memory in bytes and utilisation in per cent; -1 if that is not known.
        folder: Where the system describes it.
    """

    def __init__(
        self,
        pid: int,
        pauses: PauseCounts,
        gpu: Callable[[], tuple[int, int]] = lambda: (0, -1),
        folder: str = "/proc/self",
    ) -> None:
        self.pid = pid
        self.pauses = pauses
        self.gpu = gpu
        self._folder = folder
        self._memory = 0, 0
        self._rss = 0
        self._totals = dict.fromkeys(("cpu_ns", "minor_faults", "major_faults", "starved_ns"), 0)

    def listen_to_pauses(self) -> None:
        """Start to listen to the garbage collector of this process."""
        if callable(self.pauses):
            gc.callbacks.append(self.pauses)

    def close(self) -> None:
        """Stop listening to the garbage collector."""
        if callable(self.pauses) and self.pauses in gc.callbacks:
            gc.callbacks.remove(self.pauses)

    def memory(self) -> Reading:
        """Read memory now."""
        if (text := self._read("statm")) is not None:
            reserved, rss, *_ = text.split()
            self._memory = int(rss) * PAGE_BYTES, int(reserved) * PAGE_BYTES
        elif not os.path.isdir("/proc/self"):
            used = psutil.Process(self.pid).memory_info()
            self._memory = used.rss, used.vms
        return Reading(*self._memory, *self.gpu())

    def memory_growth(self) -> tuple[int, int, int]:
        """Return by how many bytes memory has grown since the last call, and the memory and the device's now."""
        now, before = self.memory(), self._rss
        self._rss = now.rss_bytes
        return now.rss_bytes - before, now.rss_bytes, now.gpu_bytes

    def totals(self) -> dict[str, int]:
        """Return totals since the process started. A window's row contains their differences."""
        if (text := self._read("stat")) is not None:
            # The name, in parentheses, may contain anything.
            fields = text.rpartition(")")[2].split()
            self._totals |= {"minor_faults": int(fields[7]), "major_faults": int(fields[9])}
            self._totals["cpu_ns"] = (int(fields[11]) + int(fields[12])) * NS_PER_TICK
        if (text := self._read("schedstat")) is not None:
            # How long the main thread has been ready to run but had no core.
            self._totals["starved_ns"] = int(text.split()[1])
        self._totals["cpu_ns"] = self._cpu_ns()
        return self._totals | {"gc_pauses": self.pauses.count, "gc_pause_ns": self.pauses.ns}

    def _cpu_ns(self) -> int:
        try:
            return time.clock_gettime_ns(~self.pid << 3 | CPU_CLOCK)
        except (OSError, AttributeError):
            return self._totals["cpu_ns"]

    def _read(self, name: str) -> str | None:
        # Opened each time: a script that closes all descriptors could reuse this one's number.
        try:
            with open(f"{self._folder}/{name}", encoding="utf-8", errors="replace") as file:
                return file.read() or None
        except OSError:
            return None
