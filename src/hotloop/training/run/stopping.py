"""Ctrl-C, SIGTERM and SIGHUP end a run after its current step, with everything saved.

A second signal is ignored, so that an impatient user or service manager does not discard the checkpoint that is being
written. The third ends the run at once. The exit code is that of the first: where the process ends with its training,
as `hotloop train` does, signals that come later are ignored until its very end. A caller's handlers are given back.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any

from hotloop.errors import Interrupted
from hotloop.training.worker_process import STOPPING

PATIENCE = 2
"""Signals before one ends the run at once."""
IGNORED = b"hotloop: a checkpoint is being saved; another signal ends the run without it\n"
STDERR = 2


@dataclass(slots=True)
class _Process:
    ends_with_training: bool = False


_process = _Process()


def end_process_with_training() -> None:
    """Ignore the signals that come after a training that one has stopped, until this process ends.

    For a command, whose exit code is that of the first signal: Python's own handlers would end it with another one,
    while it prints its result or while the interpreter shuts down.
    """
    _process.ends_with_training = True


class Stop:
    """Turns the first signal into a request; use as a context manager around the loop.

    A SIGHUP that is ignored, as under nohup, stays ignored. Outside the main thread, where Python allows no handlers,
    there are no requests.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._received = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
            self._before = {each: signal.signal(each, self._receive) for each in STOPPING if each not in ignored}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        ignores = _process.ends_with_training and self.signal is not None
        for each, handler in self._before.items():
            signal.signal(each, signal.SIG_IGN if ignores else handler)
        self._before = {}

    @property
    def exit_code(self) -> int:
        """What a shell expects of a program that this signal ended: 129, 130 or 143; 0 if there was none."""
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
            os._exit(self.exit_code)  # it does not even end: cleaning up is stuck
