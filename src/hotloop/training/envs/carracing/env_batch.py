"""Steps several cars one after the other and writes the results into arrays that processes can share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

from hotloop.training.envs.carracing.config import CarRacingConfig
from hotloop.training.envs.carracing.env import CarRacingEnv, action_space, observation_space
from hotloop.training.envs.gym_types import Info
from hotloop.training.shared_memory import Field

FRAMES_ROW, TILES_ROW, LAP_ROW = range(3)
"""Rows of `info` [3, N]. LAP_ROW is 1 if a lap was finished, 0 if the car left the field, otherwise NO_LAP."""

NO_LAP = -1


class SharedArrays(NamedTuple):
    """The arrays through which a vector environment of N cars exchanges data with its workers."""

    actions: np.ndarray
    """float32 [N, A], or int64 [N]."""
    observations: np.ndarray
    """[N, ...]: the observations, after the reset if the episode ended in this step."""
    final_observations: np.ndarray
    """[N, ...]: the observations before that reset."""
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


def shared_fields(config: CarRacingConfig, count: int) -> tuple[Field, ...]:
    """Return the layout of `SharedArrays` for `count` cars."""
    observation, action = observation_space(config), action_space(config)
    flag, number = np.dtype(np.bool_), np.dtype(np.int32)
    assert observation.dtype is not None and action.dtype is not None and action.shape is not None
    return (
        Field("actions", (count, *action.shape), np.dtype(action.dtype)),
        Field("observations", (count, *observation.shape), np.dtype(observation.dtype)),
        Field("final_observations", (count, *observation.shape), np.dtype(observation.dtype)),
        Field("rewards", (count,), np.dtype(np.float32)),
        Field("terminated", (count,), flag),
        Field("truncated", (count,), flag),
        Field("info", (3, count), number),
        Field("final_info", (3, count), number),
    )


class EnvBatch:
    """Cars number `first` up to `last` of a vector environment; `arrays` holds actions and receives results."""

    def __init__(
        self,
        config: CarRacingConfig,
        arrays: SharedArrays,
        first: int,
        last: int,
        autoreset: AutoresetMode,
        render_mode: str | None = None,
    ) -> None:
        self.cars = [CarRacingEnv(render_mode=render_mode, **asdict(config)) for _ in range(first, last)]
        self._arrays, self._first, self._autoreset = arrays, first, autoreset
        self._over = [False] * len(self.cars)

    def reset(self, seeds: Sequence[int | None], mask: Sequence[bool], options: Info | None = None) -> None:
        """Start an episode of the cars selected by `mask`. `seeds` has an entry for every car, which may be None."""
        for k, car in enumerate(self.cars):
            if mask[k]:
                self._start_episode(k, car, seeds[k], options)
                self._write_result(self._first + k, 0.0, False, False)

    def step(self) -> None:
        """Step all cars."""
        arrays = self._arrays
        for k, car in enumerate(self.cars):
            i = self._first + k
            if self._over[k] and self._autoreset is AutoresetMode.NEXT_STEP:
                self._start_episode(k, car)
                self._write_result(i, 0.0, False, False)
                continue
            observation, reward, terminated, truncated, info = car.step(arrays.actions[i])
            arrays.final_observations[i] = observation
            _write_info(arrays.final_info, i, info)
            self._over[k] = terminated or truncated
            if self._over[k] and self._autoreset is AutoresetMode.SAME_STEP:
                self._start_episode(k, car)
            else:
                arrays.observations[i] = observation
                arrays.info[:, i] = arrays.final_info[:, i]
            self._write_result(i, reward, terminated, truncated)

    def close(self) -> None:
        """Close the cars."""
        for car in self.cars:
            car.close()

    def _start_episode(self, k: int, car: CarRacingEnv, seed: int | None = None, options: Info | None = None) -> None:
        i = self._first + k
        self._arrays.observations[i], info = car.reset(seed=seed, options=options)
        _write_info(self._arrays.info, i, info)
        self._over[k] = False

    def _write_result(self, i: int, reward: float, terminated: bool, truncated: bool) -> None:
        arrays = self._arrays
        arrays.rewards[i], arrays.terminated[i], arrays.truncated[i] = reward, terminated, truncated


def _write_info(rows: np.ndarray, i: int, info: Info) -> None:
    rows[FRAMES_ROW, i], rows[TILES_ROW, i] = info["frames"], info["tiles"]
    rows[LAP_ROW, i] = info.get("lap_finished", NO_LAP)
