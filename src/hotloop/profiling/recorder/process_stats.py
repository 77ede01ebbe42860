"""Process statistics besides spans: memory, garbage collector pauses, page faults, tallies, device time."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import asdict

from hotloop.clock import DeviceClock, process_cpu_ns
from hotloop.profiling.recorder.call_tree.thread_totals import Account
from hotloop.profiling.recorder.process_memory import MemoryReader, cuda_in_use, page_faults, starved_ns
from hotloop.spans import registry
from hotloop.spans.hot_path import Pauses


class Vitals:
    """Reads these statistics, and adds changes to a thread's account, so that the fold assigns them to nodes."""

    def __init__(self) -> None:
        self.memory = MemoryReader()
        self.tally_events = 0
        self.device_ns: Counter[int] = Counter()
        self._rss = self.memory.read().rss_bytes
        for each in registry.known_tallies():
            each.fresh()
        self._device: DeviceClock | None = None
        self._pauses = Pauses()
        gc.callbacks.append(self._pauses)

    def close(self) -> None:
        """Stop listening to the garbage collector."""
        if self._pauses in gc.callbacks:
            gc.callbacks.remove(self._pauses)

    def memory_now(self) -> dict[str, int]:
        """Return the memory columns of a window's row."""
        return asdict(self.memory.read())

    def read_memory(self, at: int, account: Account) -> None:
        """Add the growth of memory since the last call."""
        reading = self.memory.read()
        account.rises.append((at, reading.rss_bytes - self._rss, reading.rss_bytes, reading.gpu_bytes))
        self._rss = reading.rss_bytes

    def take_bumps(self, bumps: list[list[int]], account: Account) -> None:
        """Note changes of tallies: (at, code, amount)."""
        self.tally_events += sum(n for _, _, n in bumps)
        account.bumps += [(at, code, n, 0) for at, code, n in bumps]

    def read_device(self) -> None:
        """Collect the device time of spans that the device has finished, if the script uses a device."""
        if self._device is None and (cuda := cuda_in_use()) is not None:
            self._device = DeviceClock(lambda: cuda.Event(enable_timing=True))
            registry.use_device(self._device)
        if self._device is not None:
            self.device_ns.update(self._device.poll())

    def totals(self) -> dict[str, int]:
        """Return totals since the process started. A window's row contains their differences."""
        minor, major = page_faults()
        return {
            "cpu_ns": process_cpu_ns(),
            "minor_faults": minor,
            "major_faults": major,
            "gc_pauses": self._pauses.count,
            "gc_pause_ns": self._pauses.ns,
            "starved_ns": starved_ns(),
        }
