"""Ctrl-C, SIGTERM and SIGHUP end a run after its current step, with everything saved.

A second signal is ignored, so that an impatient user or service manager does not discard the checkpoint that is being
written. The third ends the run at once. The exit code is that of the first signal. The caller's handlers are restored,
unless the process ends with its training, as `hotloop train` does: then later signals are ignored until it exits.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

from hotloop.errors import Interrupted
from hotloop.training.worker_process import STOPPING

PATIENCE = 2
"""Signals before one ends the run at once."""
IGNORED = b"hotloop: a checkpoint is being saved; another signal ends the run without it\n"
STDERR = 2

Handler = Callable[[int, FrameType | None], object] | int | None
"""What `signal.signal` returns."""


class Stop:
    """Turns the first signal into a request; use as a context manager around the loop.

    A SIGHUP that is ignored, as under nohup, stays ignored. Outside the main thread, where Python allows no handlers,
    there are no requests. If it `ends_process`, signals are ignored after the training too, if one has stopped it:
    Python's own handlers would end a command with another exit code while it prints its result or shuts down.
    """

    def __init__(self, ends_process: bool = False) -> None:
        self._ends_process = ends_process
        self.signal: signal.Signals | None = None
        self._received = 0
        self._before: dict[int, Handler] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
            self._before = {each: signal.signal(each, self._receive) for each in STOPPING if each not in ignored}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        ignores = self._ends_process and self.signal is not None
        for each, handler in self._before.items():
            signal.signal(each, signal.SIG_IGN if ignores else handler)
        self._before = {}

    @property
    def exit_code(self) -> int:
        """Exit code that a shell expects after this signal: 129, 130 or 143; 0 without a signal."""
        return 128 + self.signal if self.signal else 0

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received += 1
        if self.signal is None:
            self.signal = signal.Signals(number)
        elif self._received <= PATIENCE:
            try:
                # Not by print, which may be in the middle of a line.
                os.write(STDERR, IGNORED)
            except OSError:
                pass  # nobody can read it
        elif self._received == PATIENCE + 1:
            raise Interrupted(self.exit_code)
        else:
            os._exit(self.exit_code)  # cleaning up is stuck
