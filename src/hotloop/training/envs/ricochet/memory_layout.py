"""How games lie in memory, and the numbers by which kernels and classes speak of them.

A cell is one number, 16·y + x, on boards of every size, so that the positions of four robots fit into 32 bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

CELLS = 256
STEPS, OVER, RANDOM, GOAL, TARGET, OPTIMAL, MOVED = range(7)
"""Columns of `State.vitals`. RANDOM holds 64 bits; OPTIMAL and MOVED are UNKNOWN for a board that nobody solved."""

STEPS_ROW, OPTIMAL_ROW, CAUSE_ROW = range(3)
"""Rows of `Outputs.info`."""

SAME_STEP, NEXT_STEP, DISABLED = range(3)
RESET, HOLD, AGAIN = -1, -2, -3
"""Actions that only `reset` may ask for: a new board, leave it as it is, and begin the board that lies there."""

WRONG_ACTION, NO_BOARD = -1, -2
"""What the kernel says instead of the number of episodes that ended."""

MOST_TRIES = 20_000
"""Boards made for a level before it is given up."""


class Rules(NamedTuple):
    """What the kernel must know of a configuration, as plain numbers."""

    size: int
    robots: int
    observation: int
    structures: int
    actions: int
    max_steps: int
    autoreset: int
    lowest_action: int
    """0, or AGAIN where reset calls."""
    shortest: int
    longest: int
    """0 where no level is asked for."""
    fewest_robots: int
    most_robots: int
    step: float
    solved: float


class State(NamedTuple):
    """All that is known of N games."""

    vitals: np.ndarray
    """int64 [N, 7]"""
    robots: np.ndarray
    """uint8 [N, 4]: cells; what is above the number of robots is 0."""
    walls: np.ndarray
    """uint8 [N, 256]: bit d of a cell is set where it has a wall up, right, down, left; the border included."""
    stops: np.ndarray
    """uint8 [N, 1024]: at 256·d + cell, where a slide that way ends on a board without robots. Follows from walls."""
    layer: np.ndarray
    """uint8 [N, C·g·g]: the planes of the board alone, where planes are seen. Follows too."""
    begun: np.ndarray
    """bool [N]: has the board changed since it was last drawn?"""


class Boards(NamedTuple):
    """M solved boards to draw from; none of them where boards are made anew."""

    walls: np.ndarray
    """uint8 [M, 256]"""
    robots: np.ndarray
    """uint8 [M, 4]"""
    facts: np.ndarray
    """int64 [M, 4]: goal, target, optimal length, robots moved."""


class Search(NamedTuple):
    """Memory of the solver. One thread uses it at a time."""

    table: np.ndarray
    """uint64 [2^k]: positions seen, 32 bits, of search number, 24 bits, with moves left, 8 bits."""
    bound: np.ndarray
    """uint8 [256]: moves that the target robot needs at least, if it could stop anywhere on its way."""
    path: np.ndarray
    """int64 [3, 64]: by depth, positions, the next action to try, and the action taken."""
    queue: np.ndarray
    """int64 [256]"""
    number: np.ndarray
    """int64 [1]: of the search, 24 bits, which tells its entries from older ones."""


class Outputs(NamedTuple):
    """What one step hands out. Of planes and numbers at most one pair is not empty."""

    planes: np.ndarray
    """uint8 [N, C·g·g]: what the agent sees now, after a reset where an episode ended in this step."""
    final_planes: np.ndarray
    """uint8 [N, C·g·g]: what it would see without that reset; the same array where there is none."""
    numbers: np.ndarray
    """float32 [N, F]"""
    final_numbers: np.ndarray
    """float32 [N, F]"""
    final_robots: np.ndarray
    """uint8 [N, 4]: where the robots were before the reset."""
    reward: np.ndarray
    """float32 [N]"""
    terminated: np.ndarray
    """bool [N]"""
    truncated: np.ndarray
    """bool [N]"""
    info: np.ndarray
    """int32 [3, N]: steps, optimal length, cause; after the reset, like `planes`."""
    final_info: np.ndarray
    """int32 [3, N]: before it."""
