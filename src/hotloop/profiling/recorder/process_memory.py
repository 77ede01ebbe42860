"""Memory of this process and its device, page faults, and time spent waiting for a core. Cheap enough to read often."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import psutil

try:
    import resource
except ImportError:  # Windows has no page-fault counts of this kind.
    resource = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Reading:
    """Memory at one moment."""

    rss_bytes: int
    reserved_bytes: int = 0
    """Virtual memory, used or not: a buffer allocated at the start becomes resident only as it fills."""
    gpu_bytes: int = 0
    gpu_busy_percent: int = -1


class MemoryReader:
    """Reads resident memory, and device memory if torch is using a device."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._busy_of: Callable[[], int] | None = None
        self._page = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0

    def read(self) -> Reading:
        """Read now."""
        cuda = cuda_in_use()
        rss, reserved = self._own_bytes()
        if cuda is None:
            return Reading(rss, reserved)
        return Reading(rss, reserved, int(cuda.memory_allocated()), self._busy_percent())

    def _own_bytes(self) -> tuple[int, int]:
        # Opened each time: a script that closes all descriptors could reuse this one's number.
        try:
            with open("/proc/self/statm", "rb", buffering=0) as file:
                reserved, rss, *_ = file.read(128).split()
        except OSError:
            used = self._process.memory_info()
            return used.rss, used.vms
        return int(rss) * self._page, int(reserved) * self._page

    def _busy_percent(self) -> int:
        """Return the device's utilisation; -1 if it is not reported, as for a slice of a device."""
        try:
            if self._busy_of is None:
                pynvml = importlib.import_module("pynvml")
                pynvml.nvmlInit()
                handle = pynvml.nvmlDeviceGetHandleByIndex(0)
                self._busy_of = lambda: int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
            return self._busy_of()
        except Exception:
            self._busy_of = lambda: -1
            return -1


def page_faults() -> tuple[int, int]:
    """Return the minor and major page faults of this process so far."""
    if resource is None:
        return 0, 0
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt, usage.ru_majflt


def starved_ns() -> int:
    """Return how long the main thread has been ready to run but had no core; 0 if the system does not count this."""
    try:
        with open("/proc/self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):  # Not Linux, or a kernel that does not count.
        return 0


def cuda_in_use() -> ModuleType | None:
    """Return torch.cuda if the script has used it, else None."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None
