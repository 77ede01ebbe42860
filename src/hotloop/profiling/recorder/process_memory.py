"""Memory of this process and its device, page faults and waiting for a core, read cheaply: several times a second."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from typing import Any

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
    """Asked for, whether it is in use yet or not: a buffer made whole at the start is resident only as it fills."""
    gpu_bytes: int = 0
    gpu_busy_percent: int = -1


class MemoryReader:
    """Reads resident memory, and the device's where torch has one in use."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._nvml: Any = None
        self._page = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0

    def read(self) -> Reading:
        """Read now."""
        cuda = cuda_in_use()
        rss, reserved = self._own_bytes()
        if cuda is None:
            return Reading(rss, reserved)
        return Reading(rss, reserved, int(cuda.memory_allocated()), self._busy_percent())

    def _own_bytes(self) -> tuple[int, int]:
        # Opened each time: a script that closes all descriptors could get this one's number for a file of its own.
        try:
            with open("/proc/self/statm", "rb", buffering=0) as file:
                reserved, rss, *_ = file.read(128).split()
        except OSError:
            used = self._process.memory_info()
            return used.rss, used.vms
        return int(rss) * self._page, int(reserved) * self._page

    def _busy_percent(self) -> int:
        if self._nvml is None:
            try:
                pynvml = importlib.import_module("pynvml")
                pynvml.nvmlInit()
                self._nvml = (pynvml, pynvml.nvmlDeviceGetHandleByIndex(0))
            except Exception:
                self._nvml = False
        if not self._nvml:
            return -1
        library, handle = self._nvml
        try:
            return int(library.nvmlDeviceGetUtilizationRates(handle).gpu)
        except Exception:  # not every device tells, such as a slice of one
            self._nvml = False
            return -1


def page_faults() -> tuple[int, int]:
    """Minor and major page faults of this process so far."""
    if resource is None:
        return 0, 0
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt, usage.ru_majflt


def starved_ns() -> int:
    """How long the main thread of this process has been ready to run and had no core so far; 0 where nobody counts."""
    try:
        with open("/proc/self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):  # not Linux, or a kernel that does not count
        return 0


def cuda_in_use() -> Any:
    """torch.cuda, once the script has used it; else None."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None
