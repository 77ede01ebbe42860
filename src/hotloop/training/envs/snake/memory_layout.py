"""How games lie in memory, and the numbers by which kernels and classes speak of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

HEAD, LENGTH, HEADING, FOOD, STEPS, OVER, RANDOM = range(7)
"""Columns of `State.vitals`. HEAD is a slot of the body's ring; RANDOM holds 64 bits."""

SCORE_ROW, LENGTH_ROW, STEPS_ROW, CAUSE_ROW = range(4)
"""Rows of `Outputs.info`."""

SAME_STEP, NEXT_STEP, DISABLED = range(3)
RESET, HOLD = -1, -2
"""Actions that only `reset` may ask for: begin anew, and leave it as it is."""


class Rules(NamedTuple):
    """What the kernel must know of a configuration, as plain numbers."""

    board: int
    level: int
    actions: int
    max_steps: int
    tail_free: bool
    autoreset: int
    lowest_action: int
    """0, or HOLD where reset calls."""
    food: float
    death: float
    step: float
    shaping: float
    timeout: float


class State(NamedTuple):
    """All that is known of N games."""

    vitals: np.ndarray
    """int64 [N, 7]"""
    rows: np.ndarray
    """uint64 [N, g]: bit x of row y is set where the body lies."""
    body: np.ndarray
    """int16 [N, g·g]: a ring of cells."""


class Outputs(NamedTuple):
    """What one step hands out. Of features and grid, one pair is empty."""

    features: np.ndarray
    """float32 [N, F]: what the agent sees now, after a reset where an episode ended in this step."""
    final_features: np.ndarray
    """float32 [N, F]: what it would see without that reset; the same array where there is none."""
    grid: np.ndarray
    """uint8 [N, g·g·3]"""
    final_grid: np.ndarray
    """uint8 [N, g·g·3]"""
    reward: np.ndarray
    """float32 [N]"""
    terminated: np.ndarray
    """bool [N]"""
    truncated: np.ndarray
    """bool [N]"""
    info: np.ndarray
    """int32 [4, N]: score, length, steps, cause; after the reset, like `features`."""
    final_info: np.ndarray
    """int32 [4, N]: before it."""


class Position(NamedTuple):
    """The few numbers of a game that decide what can be seen; numbers only, so that handing them on is free."""

    x: int
    y: int
    heading: int
    length: int
    food: int
    tail: int
    open_cell: int
    """The tail, if one may go there; NOWHERE otherwise."""
