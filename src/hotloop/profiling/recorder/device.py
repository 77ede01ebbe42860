"""The device that torch uses in this process: its memory, its utilisation, and the time of spans on it."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from types import ModuleType

from hotloop.clock import DeviceClock
from hotloop.spans import registry


def cuda_in_use() -> ModuleType | None:
    """Return torch.cuda if the script has used it, else None."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def device_memory() -> tuple[int, int]:
    """Return the bytes in use and the utilisation in per cent; -1 if that is not reported."""
    cuda = cuda_in_use()
    return (0, -1) if cuda is None else (int(cuda.memory_allocated()), _utilisation()())


@functools.cache
def _utilisation() -> Callable[[], int]:
    try:
        pynvml = importlib.import_module("pynvml")
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        pynvml.nvmlDeviceGetUtilizationRates(handle)
    except Exception:
        return lambda: -1
    return lambda: int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)


class DeviceTimes:
    """Measures spans on the device, once the script uses one."""

    def __init__(self) -> None:
        self._clock: DeviceClock | None = None

    def poll(self) -> dict[int, int]:
        """Return the device time in ns, by code, of the spans that the device has finished since the last call."""
        cuda = cuda_in_use()
        if cuda is None:
            return {}
        if self._clock is None:
            self._clock = DeviceClock(lambda: cuda.Event(enable_timing=True))
            registry.use_device(self._clock)
        return self._clock.poll()
