"""Numbers in shared memory through which the learner and its workers coordinate without messages.

Each number has a single writer. The learner writes how far workers may go. A worker writes its progress, heartbeat and
times into a row of its own, two cache lines long, so that workers do not slow each other down by false sharing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from hotloop.training.collect.interface import Spent
from hotloop.training.shared_memory import Block, Field, allocate, attach

STEPS, HEARTBEAT, VERSION, REACHED = range(4)
"""Columns of a worker's row: steps made, time of the last sign of life (ns), version of its weights, and the limit at
which it stopped."""
ACT, ENV, STORE, WEIGHTS, REPORT, RATIO = range(4, 10)
"""Nanoseconds as in `Spent`, summed over the worker and those it replaced."""
STORED = 10
"""Steps made that are in replay; written after the lane's head was advanced."""
COLUMNS: Final = 16
STOP, LIMIT, WAITING = range(3)
"""Orders: whether workers must stop; steps that all together may have made; whether the learner waits to be woken."""
INT = np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class ControlHandle:
    """Lets a worker attach to the control block. Picklable."""

    path: Path
    workers: int


class ControlBlock:
    """The shared numbers, mapped into this process.

    Attributes:
        orders: int64 [8].
        limits: int64 [workers]: steps that each worker may have made, in lock-step.
        rows: int64 [workers, 16].
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self.orders, self.limits = block.arrays["orders"], block.arrays["limits"]
        self.rows = block.arrays["rows"]

    @classmethod
    def make(cls, workers: int) -> ControlBlock:
        """Allocate the block."""
        return cls(allocate(control_fields(workers), "shared"))

    @classmethod
    def attach(cls, handle: ControlHandle) -> ControlBlock:
        """Map the block of another process."""
        return cls(attach(handle.path, control_fields(handle.workers)))

    def handle(self) -> ControlHandle:
        """Return the handle with which workers attach."""
        assert self._block.path is not None
        return ControlHandle(self._block.path, len(self.rows))

    def spent(self) -> Spent:
        """Return the time spent by all workers."""
        return Spent(*(self.rows[:, ACT : RATIO + 1].sum(0) / 1e9).tolist())

    def close(self) -> None:
        """Let no further process attach."""
        self._block.close()


def control_fields(workers: int) -> tuple[Field, ...]:
    """Return the arrays of the block."""
    return Field("orders", (8,), INT), Field("limits", (workers,), INT), Field("rows", (workers, COLUMNS), INT)
