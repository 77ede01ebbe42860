"""How a script of `bench/true_cost.py` counts its steps and takes turns with others. Started by hand, it only counts.

At the end of a turn the process stops itself between two iterations, with all its threads, until SIGCONT. If it is
recorded, its recorder is told that this time has not been: else it would write three times as often for each second
that the script runs, and think that recording costs a third of what it does. Child processes do the same on SIGUSR1.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext

STEPS, ASKED, BEGAN_NS, ENDED_NS, RESTED_NS = range(5)
"""Places on the board, 8 bytes each: steps done, what to do, the last turn, and the time between turns in all."""
BOARD_BYTES = 5 * 8
GO, REST, LEAVE = range(3)
VARIABLE = "TRUE_COST_BOARD"


def open_board(path: str | None) -> memoryview:
    """Return the memory that a script and the bench share."""
    if path is None:
        return memoryview(bytearray(BOARD_BYTES)).cast("q")
    with open(path, "r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), BOARD_BYTES)).cast("q")


_board = open_board(os.environ.get(VARIABLE))


def tick(steps: int = 1) -> None:
    """Count steps; end the turn if asked to."""
    _board[STEPS] += steps
    if _board[ASKED]:
        _end_turn()


def _end_turn() -> None:
    _board[ENDED_NS] = ended = time.perf_counter_ns()
    _stop()
    if _board[ASKED] == LEAVE:
        sys.exit()
    _board[BEGAN_NS] = began = time.perf_counter_ns()
    _board[RESTED_NS] += began - ended


def _stop(*_: object) -> None:
    with _recorder_held():
        # To this thread, so that it stops here and not a few lines later.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _recorder_held() -> AbstractContextManager[None]:
    session = sys.modules.get("hotloop.profiling.recorder.session")
    current = session._current.session if session else None
    if current is None or current.recorder is None:
        return nullcontext()
    return current.recorder.resting()


if VARIABLE in os.environ:
    signal.signal(signal.SIGUSR1, _stop)
