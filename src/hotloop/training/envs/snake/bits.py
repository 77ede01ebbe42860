"""Flood fill on bit rows: each row of the board is one 64-bit integer.

`flood` fills a region a whole row at a time. From any cell of a run of free cells, an addition fills the run up to its
upper end (by the carry) and a few doubling shifts fill it down to its lower end. Sweeping the rows down and up until
nothing changes takes three sweeps on an open board, where a search would visit every cell.

Numba recompiles a cached kernel only when the kernel's own file changes: after a change here, touch `kernels.py`.
"""

from __future__ import annotations

import numpy as np

from hotloop.training.envs.numba_tools import count_ones, kernel

ZERO, ONE = np.uint64(0), np.uint64(1)
FREE = 3
"""Index into the scratch memory [4, g] of the free cells. The other three entries hold filled regions."""


@kernel
def fill_runs(free: np.uint64, seeds: np.uint64) -> np.uint64:
    """Fill every run of free cells that contains a seed; seeds must be free."""
    # The carry of free + seeds flips all bits from a seed to the upper end of its run.
    filled = ((free ^ (free + seeds)) & free) | seeds
    # A carry only moves up. Downwards, the reach is doubled until no run is that long.
    runs, reach = free, ONE
    while runs != ZERO and reach < np.uint64(64):
        filled |= runs & (filled >> reach)
        runs &= runs >> reach
        reach <<= ONE
    return filled


@kernel
def fill_row(scratch: np.ndarray, k: int, y: int, beside: int) -> bool:
    """Extend region k from the neighbouring row `beside` into row y; return whether anything was added."""
    free = scratch[FREE, y]
    new = scratch[k, beside] & free & ~scratch[k, y]
    if new == ZERO:
        return False
    scratch[k, y] |= fill_runs(free, new)
    return True


@kernel
def flood(scratch: np.ndarray, k: int, x: int, y: int) -> int:
    """Fill `scratch[k]` with the region of the free cells `scratch[FREE]` around (x, y); return its number of cells."""
    board = scratch.shape[1]
    for line in range(board):
        scratch[k, line] = ZERO
    scratch[k, y] = fill_runs(scratch[FREE, y], ONE << np.uint64(x))
    for line in range(y + 1, board):
        fill_row(scratch, k, line, line - 1)
    flowing = True
    while flowing:
        flowing = False
        for line in range(board - 2, -1, -1):
            flowing |= fill_row(scratch, k, line, line + 1)
        if flowing:
            flowing = False
            for line in range(1, board):
                flowing |= fill_row(scratch, k, line, line - 1)
    cells = 0
    for line in range(board):
        cells += count_ones(scratch[k, line])
    return cells
