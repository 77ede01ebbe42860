"""Checks restored games before kernels use them.

Kernels index memory by this state without bounds checks and search the board until they find a free cell, so an invalid
state could crash the process or loop forever.
"""

from __future__ import annotations

import numpy as np

from hotloop.training.envs.snake.config import NOWHERE, START_LENGTH
from hotloop.training.envs.snake.memory_layout import FOOD, HEAD, HEADING, LENGTH, OVER, STEPS, State
from hotloop.training.state_checks import require_state, require_values

MAX_STEPS = (1 << 31) - 1
"""Infos store the number of steps in 32 bits."""


def check_games(state: State, board: int) -> None:
    """Reject impossible games: a body that leaves the board, crosses itself, or differs from the bit rows.

    Args:
        state: State of N games; shapes and types have been checked.
        board: Cells along a side.
    """
    vitals, cells = state.vitals, board * board
    bounds = {
        "head": (HEAD, 0, cells - 1),
        "length": (LENGTH, START_LENGTH, cells),
        "heading": (HEADING, 0, 3),
        "steps": (STEPS, 0, MAX_STEPS),
        "over": (OVER, 0, 1),
    }
    for name, (column, low, high) in bounds.items():
        require_values(vitals[:, column], f"vitals.{name}", low, high)
    # Read the ring backwards from the head: the first `length` slots are the body.
    back = np.arange(cells)
    is_body = back < vitals[:, LENGTH, None]
    body = np.take_along_axis(state.body, (vitals[:, HEAD, None] - back) % cells, axis=1).astype(np.int64)
    x, y = body & 63, body >> 6
    require_state(bool((~is_body | ((x < board) & (y >= 0) & (y < board))).all()), "a snake leaves the board")
    covered = np.zeros((len(vitals), cells), np.int64)
    game, slot = np.nonzero(is_body)
    np.add.at(covered, (game, y[game, slot] * board + x[game, slot]), 1)
    require_state(int(covered.max()) <= 1, "a snake crosses itself")
    bits = (covered.reshape(-1, board, board).astype(np.uint64) << np.arange(board, dtype=np.uint64)).sum(2)
    require_state(bool((bits.astype(np.uint64) == state.rows).all()), "the rows do not show the snakes' bodies")
    _check_food(vitals, covered, board)


def _check_food(vitals: np.ndarray, covered: np.ndarray, board: int) -> None:
    """Check that a full board has no food, and that on any other board it is on a free cell."""
    food, full = vitals[:, FOOD], vitals[:, LENGTH] == board * board
    require_state(bool((food[full] == NOWHERE).all()), "a full board has food")
    food, covered = food[~full], covered[~full]
    x, y = food & 63, food >> 6
    require_state(bool(((x < board) & (y >= 0) & (y < board)).all()), "food is not on the board")
    require_state(not covered[np.arange(len(food)), y * board + x].any(), "food lies on a snake")
