"""What the one who learns and its workers tell each other without a message: numbers in shared memory.

Each number has one writer. The learner writes how far workers may go, a worker how far it is, when it last moved, and
where its time went, in a row of its own, two cache lines long, so that nobody slows another down.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from hotloop.training.collect.interface import Spent
from hotloop.training.shared_memory import Block, Field, allocate, attach

STEPS, BEAT, VERSION, IDLE = range(4)
"""Columns of a worker's row: steps made, when it last moved (ns), weights in use, the limit it has reached."""
ACT, ENV, STORE, WEIGHTS, TOLD, RATIO = range(4, 10)
"""Nanoseconds, as in `Spent`, over all lives of the worker."""
STORED = 10
"""Of the steps made, those that it has brought into replay: written after the head that shows them was moved."""
COLUMNS: Final = 16
STOP, LIMIT, WAITING = range(3)
"""Orders: workers shall end; steps that all may have made together; the learner waits and wants to be woken."""
INT = np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class BoardHandle:
    """What a worker needs to find the board. Picklable."""

    path: Path
    workers: int


class Board:
    """The numbers, as this process sees them.

    Attributes:
        orders: int64 [8].
        limits: int64 [workers]: steps that each may have made, in lock-step.
        rows: int64 [workers, 16].
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self.orders, self.limits = block.arrays["orders"], block.arrays["limits"]
        self.rows = block.arrays["rows"]

    @classmethod
    def make(cls, workers: int) -> Board:
        """Make a board for so many."""
        return cls(allocate(board_fields(workers), "shared"))

    @classmethod
    def attach(cls, handle: BoardHandle) -> Board:
        """See the board of another process."""
        return cls(attach(handle.path, board_fields(handle.workers)))

    def handle(self) -> BoardHandle:
        """Return what workers need."""
        assert self._block.path is not None
        return BoardHandle(self._block.path, len(self.rows))

    def spent(self) -> Spent:
        """Return where the time of all workers went."""
        return Spent(*(self.rows[:, ACT : RATIO + 1].sum(0) / 1e9).tolist())

    def close(self) -> None:
        """Let nobody attach from here on."""
        self._block.close()


def board_fields(workers: int) -> tuple[Field, ...]:
    """Lay out a board."""
    return Field("orders", (8,), INT), Field("limits", (workers,), INT), Field("rows", (workers, COLUMNS), INT)
