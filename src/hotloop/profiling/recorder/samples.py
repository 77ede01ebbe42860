"""Stack samples on their way from the sampler to the call tree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_DEPTH = 60
COLUMNS = ("at", "ident", "stack", "elapsed_ns", "cpu_ns", "starved_ns", "flags")
COLLECTING, STATE_KNOWN, BLOCKED, ON_FILE = 2, 4, 8, 16
"""Flags of a sample, as in `_stack_reader.c`."""
TALLY = -1
"""In place of a thread's ident: the row says by how much (column 3) the tally with a code (column 2) has grown."""

Ints = NDArray[np.int64]
CodeRow = tuple[int, str, str, int, bytes, bytes]
"""Number, file, qualified name, first line, line table and instructions of a code object."""
StackRow = tuple[int, tuple[tuple[int, int], ...]]
"""Number of a stack, and the code object and instruction (in bytes) of each frame, innermost first."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What was sampled since the last call."""

    codes: list[CodeRow]
    stacks: list[StackRow]
    samples: Ints
    """[n, 7]: `COLUMNS`. `elapsed_ns` is the time that the sample stands for; -1 for an unknown CPU time."""
    changes: Ints
    """[n, 3]: (at, counter, amount) of tallies."""


def taken_from(codes: list[CodeRow], stacks: list[StackRow], packed: bytes) -> Taken:
    """Sort the rows of the sampler into samples and changes of tallies."""
    rows = np.frombuffer(packed, np.int64).reshape(-1, len(COLUMNS))
    is_change = rows[:, 1] == TALLY
    return Taken(codes, stacks, rows[~is_change], rows[is_change][:, [0, 2, 3]])
