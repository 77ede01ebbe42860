"""Some cars stepped one after the other, writing into arrays that may be shared with another process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

from hotloop.training.envs.carracing.config import CarRacingConfig
from hotloop.training.envs.carracing.env import CarRacingEnv, action_space, observation_space
from hotloop.training.shared_memory import Field

FRAMES_ROW, TILES_ROW, LAP_ROW = range(3)
"""Rows of `info` [3, N]. LAP_ROW is 1 when a lap was finished, 0 when the car left the field, else -1."""

NO_LAP = -1


class Board(NamedTuple):
    """What goes between an environment of N cars and those who step them."""

    actions: np.ndarray
    """float32 [N, A], or int64 [N]."""
    observations: np.ndarray
    """[N, ...]: what is seen now, after a reset where an episode ended in this step."""
    final_observations: np.ndarray
    """[N, ...]: what would be seen without that reset."""
    rewards: np.ndarray
    """float32 [N]"""
    terminated: np.ndarray
    """bool [N]"""
    truncated: np.ndarray
    """bool [N]"""
    info: np.ndarray
    """int32 [3, N]: after the reset, like `observations`."""
    final_info: np.ndarray
    """int32 [3, N]: before it."""


def board_fields(config: CarRacingConfig, count: int) -> tuple[Field, ...]:
    """Lay out the arrays of a board for so many cars."""
    seen, done = observation_space(config), action_space(config)
    flag, number = np.dtype(np.bool_), np.dtype(np.int32)
    assert seen.dtype is not None and done.dtype is not None and done.shape is not None
    return (
        Field("actions", (count, *done.shape), np.dtype(done.dtype)),
        Field("observations", (count, *seen.shape), np.dtype(seen.dtype)),
        Field("final_observations", (count, *seen.shape), np.dtype(seen.dtype)),
        Field("rewards", (count,), np.dtype(np.float32)),
        Field("terminated", (count,), flag),
        Field("truncated", (count,), flag),
        Field("info", (3, count), number),
        Field("final_info", (3, count), number),
    )


class Group:
    """The cars `first` up to `last` of a board.

    Args:
        options: The fields of `CarRacingConfig`.
        board: Where actions come from and everything else goes.
        first: Of the cars.
        last: One past the last of them.
        autoreset: What happens when an episode ends.
        render_mode: Of each car.
    """

    def __init__(
        self,
        options: dict[str, Any],
        board: Board,
        first: int,
        last: int,
        autoreset: AutoresetMode,
        render_mode: str | None = None,
    ) -> None:  # fmt: skip
        self.cars = [CarRacingEnv(render_mode=render_mode, **options) for _ in range(first, last)]
        self._board, self._first, self._autoreset = board, first, autoreset
        self._over = [False] * len(self.cars)

    def reset(self, seeds: Sequence[int | None], mask: Sequence[bool], options: dict[str, Any] | None = None) -> None:
        """Begin an episode in the cars of the mask; all have seeds, which may be None."""
        for k, car in enumerate(self.cars):
            if mask[k]:
                self._begin(k, car, seeds[k], options)
                self._settle(self._first + k, 0.0, False, False)

    def step(self) -> None:
        """Step all cars."""
        board = self._board
        for k, car in enumerate(self.cars):
            i = self._first + k
            if self._over[k] and self._autoreset is AutoresetMode.NEXT_STEP:
                self._begin(k, car)
                self._settle(i, 0.0, False, False)
                continue
            seen, reward, terminated, truncated, info = car.step(board.actions[i])
            board.final_observations[i] = seen
            _tell(board.final_info, i, info)
            self._over[k] = terminated or truncated
            if self._over[k] and self._autoreset is AutoresetMode.SAME_STEP:
                self._begin(k, car)
            else:
                board.observations[i] = seen
                board.info[:, i] = board.final_info[:, i]
            self._settle(i, reward, terminated, truncated)

    def close(self) -> None:
        """Give up the cars."""
        for car in self.cars:
            car.close()

    def _begin(self, k: int, car: CarRacingEnv, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        i = self._first + k
        self._board.observations[i], info = car.reset(seed=seed, options=options)
        _tell(self._board.info, i, info)
        self._over[k] = False

    def _settle(self, i: int, reward: float, terminated: bool, truncated: bool) -> None:
        board = self._board
        board.rewards[i], board.terminated[i], board.truncated[i] = reward, terminated, truncated


def _tell(rows: np.ndarray, i: int, info: dict[str, Any]) -> None:
    rows[FRAMES_ROW, i], rows[TILES_ROW, i] = info["frames"], info["tiles"]
    rows[LAP_ROW, i] = info.get("lap_finished", NO_LAP)
