"""The arrays that hold games, and the column and row numbers that kernels and classes share.

A cell is one number, 16·y + x, on boards of every size, so that the positions of four robots fit into 32 bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

CELLS = 256
STEPS, OVER, RANDOM, GOAL, TARGET, OPTIMAL, MOVED = range(7)
"""Columns of `State.vitals`. RANDOM is the 64-bit random state; OPTIMAL and MOVED are UNKNOWN on an unsolved board."""

STEPS_ROW, OPTIMAL_ROW, CAUSE_ROW = range(3)
"""Rows of an info."""

RESTART = -3
"""Action that only `reset` sends, besides RESET and HOLD of `autoreset`: start an episode on the current board."""

WRONG_ACTION, NO_BOARD = -1, -2
"""Error codes that the kernel returns in place of the number of ended episodes."""

MAX_TRIES = 20_000
"""Boards to generate for a level before giving up."""


class Rules(NamedTuple):
    """The configuration as plain numbers, for the kernel."""

    size: int
    robots: int
    observation: int
    structures: int
    actions: int
    max_steps: int
    autoreset: int
    lowest_action: int
    """The smallest valid action: 0 in `step`, RESTART in `reset`."""
    shortest: int
    longest: int
    """0 without a level."""
    fewest_robots: int
    most_robots: int
    step: float
    solved: float


class State(NamedTuple):
    """The complete state of N games on boards of g×g cells."""

    vitals: np.ndarray
    """int64 [N, 7]"""
    robots: np.ndarray
    """uint8 [N, 4]: cells; unused entries are 0."""
    walls: np.ndarray
    """uint8 [N, 256]: bit d of a cell is set if it has a wall up, right, down, left; includes the border."""
    stops: np.ndarray
    """uint8 [N, 1024]: at 256·d + cell, where a slide in direction d ends without robots. Computed from walls."""
    layer: np.ndarray
    """uint8 [N, C·g·g]: the planes that do not change during an episode. Computed from walls and goal."""
    needs_redraw: np.ndarray
    """bool [N]: whether the board has changed since it was last drawn."""
    final_robots: np.ndarray
    """uint8 [N, 4]: the robots at the end of the last step, before a reset in the same step."""


def new_state(count: int, layer_size: int = 0) -> State:
    """Allocate the state of `count` games, with `layer_size` bytes each for static planes."""
    return State(
        vitals=np.zeros((count, 7), np.int64),
        robots=np.zeros((count, 4), np.uint8),
        walls=np.zeros((count, CELLS), np.uint8),
        stops=np.zeros((count, 4 * CELLS), np.uint8),
        layer=np.zeros((count, layer_size), np.uint8),
        needs_redraw=np.zeros(count, np.bool_),
        final_robots=np.zeros((count, 4), np.uint8),
    )


class Boards(NamedTuple):
    """M solved boards to draw from; M is 0 if boards are generated."""

    walls: np.ndarray
    """uint8 [M, 256]"""
    robots: np.ndarray
    """uint8 [M, 4]"""
    facts: np.ndarray
    """int64 [M, 4]: goal, target, optimal length, robots moved."""


class Search(NamedTuple):
    """Working memory of the solver. Each thread needs its own."""

    table: np.ndarray
    """uint64 [2^k]: visited positions (32 bits), number of the search (24 bits), moves left (8 bits)."""
    bound: np.ndarray
    """uint8 [256]: lower bound of the target robot's moves to the goal, as if it could stop anywhere on its path."""
    path: np.ndarray
    """int64 [3, 64]: by depth, positions, the next action to try, and the action taken."""
    queue: np.ndarray
    """int64 [256]"""
    number: np.ndarray
    """int64 [1]: number of the current search, 24 bits, which distinguishes its table entries from older ones."""
