"""Ctrl-C and SIGTERM end a run after its current step, with everything saved. A second Ctrl-C ends it at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Turns the first signal into a wish; use as a context manager around the loop.

    Outside the main thread, where Python allows no handlers, it never wishes to stop.
    """

    def __init__(self) -> None:
        self.asked: signal.Signals | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._ask) for each in SIGNALS}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)
        self._before = {}

    @property
    def exit_code(self) -> int:
        """What a shell expects of a program that this signal ended: 130 or 143; 0 if there was none."""
        return 128 + self.asked if self.asked else 0

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked is not None:
            raise KeyboardInterrupt
        self.asked = signal.Signals(number)
