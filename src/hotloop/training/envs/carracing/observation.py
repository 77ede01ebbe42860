"""The observation of a game: a picture drawn by the kernels, or the 36 numbers of the `vector` state."""

from __future__ import annotations

import numpy as np

from hotloop.training.envs.carracing import kernels, score_digits
from hotloop.training.envs.carracing.config import COLOURINGS, CarRacingConfig
from hotloop.training.envs.carracing.game import (
    FIELD,
    Game,
    palette_of,
    read_car,
    read_scene,
    read_shape,
    read_track,
)
from hotloop.training.envs.carracing.memory_layout import CAR_NUMBERS, VECTOR_NUMBERS, Brush, View
from hotloop.training.envs.gym_types import Observations


def new_game(config: CarRacingConfig, render_mode: str | None = None) -> Game:
    """Make the official game for a configuration."""
    return Game(
        render_mode=render_mode,
        lap_complete_percent=config.lap_complete_percent,
        domain_randomize=config.domain_randomize,
        continuous=config.action_form != "discrete",
    )


def new_brush(side: int) -> Brush:
    """Allocate the working memory for drawing on a canvas of `side` × `side` samples."""
    return Brush(np.empty((side, side), np.uint8), np.empty(side), np.empty(side), np.empty((8, 2)))


class Observer:
    """Makes the observations of one game. Call `start_episode` after each reset of the game."""

    def __init__(self, game: Game, config: CarRacingConfig) -> None:
        self._game, self._config = game, config
        self._view = View(config.size, config.supersample, config.indicators)
        self._channels = COLOURINGS[config.colour]
        self._brush = new_brush(config.size * config.supersample)
        self._car = np.zeros(CAR_NUMBERS)

    def start_episode(self) -> None:
        """Read the track of a new episode."""
        if self._config.state == "vector":
            self._track = read_track(self._game)
        else:
            self._world = (FIELD, read_scene(self._game), read_shape(self._game))
            self._palette = palette_of(self._game, self._channels)

    def observe(self) -> Observations:
        """Return uint8 [S, S] or [S, S, 3], or float32 [36]."""
        read_car(self._game, self._car)
        if self._config.state == "vector":
            numbers = np.empty(VECTOR_NUMBERS, np.float32)
            kernels.write_vector_state(self._track, self._car, FIELD.half, numbers)
            return numbers
        size = self._config.size
        picture = np.empty((size, size, self._channels), np.uint8)
        kernels.draw(self._view, self._world, self._car, self._brush, self._palette, picture)
        if self._config.indicators:
            row, column, pixels = score_digits.stamp(round(self._game.displayed_score), size)
            picture[row : row + pixels.shape[0], column : column + pixels.shape[1]] = pixels[:, :, None]
        return picture if self._channels == 3 else picture[:, :, 0]
