"""The arrays that hold games, and the column and row numbers that kernels and classes share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

HEAD, LENGTH, HEADING, FOOD, STEPS, OVER, RANDOM = range(7)
"""Columns of `State.vitals`. HEAD is a slot of the body's ring buffer; RANDOM is the 64-bit random state."""

SCORE_ROW, LENGTH_ROW, STEPS_ROW, CAUSE_ROW = range(4)
"""Rows of an info."""


class Rules(NamedTuple):
    """The configuration as plain numbers, for the kernel."""

    board: int
    level: int
    actions: int
    max_steps: int
    tail_free: bool
    autoreset: int
    lowest_action: int
    """The smallest valid action: 0 in `step`, HOLD in `reset`."""
    food: float
    death: float
    step: float
    shaping: float
    timeout: float


class State(NamedTuple):
    """The complete state of N games on boards of g×g cells."""

    vitals: np.ndarray
    """int64 [N, 7]"""
    rows: np.ndarray
    """uint64 [N, g]: bit x of row y is set where the body covers the cell."""
    body: np.ndarray
    """int16 [N, g·g]: ring buffer of cells."""


class Position(NamedTuple):
    """The numbers of a game from which features are computed. It has no arrays, so kernels pass it at no cost."""

    x: int
    y: int
    heading: int
    length: int
    food: int
    tail: int
    open_cell: int
    """The tail's cell if the head may move there; otherwise NOWHERE."""
