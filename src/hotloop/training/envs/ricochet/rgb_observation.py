"""What agents see as `rgb`: a layer for each board, drawn when the board begins, and a picture for each step.

The spans have the names of the profiler study, so that its parts can be told from each other in a run of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop.spans import span
from hotloop.training.array_pool import Shelf
from hotloop.training.envs.ricochet import raster
from hotloop.training.envs.ricochet.config import PICTURE, RicochetConfig
from hotloop.training.envs.ricochet.memory_layout import State

Array = NDArray[Any]
Spread = Callable[[Callable[[int, int, int], Any]], list[Any]]
"""Does work(k, first, last) for all boards, in as many threads as the environment has."""

BYTES = 3 * PICTURE * PICTURE


class Pictures:
    """Draws all boards of an environment, whose state it only reads."""

    def __init__(self, state: State, config: RicochetConfig, spread: Spread) -> None:
        self._state, self._robots, self._spread = state, config.robots, spread
        self._sheet = raster.canvas(config.size, PICTURE)
        self._layers = np.empty((len(state.vitals), BYTES), np.uint8)
        self._fresh = Shelf(self._layers.shape, np.uint8)
        self._all = np.arange(len(state.vitals))

    def draw(self) -> Array:
        """Return a picture of every board, uint8 [N, P, P, 3]."""
        with span("env_rgb_observation_generation"):
            out = self._fresh.take()
            with span("env_rgb_rendering"):
                self._draw_layers()
                with span("env_rgb_draw_robots"):
                    self._spread(lambda k, first, last: self._draw_robots(first, last, out))
            return out.reshape(-1, PICTURE, PICTURE, 3)

    def draw_final(self, robots: Array, over: Array) -> Array:
        """Return pictures of the boards whose episode is over, before the new ones' layers are drawn: objects [N]."""
        games = np.flatnonzero(over)
        out = np.empty((len(games), BYTES), np.uint8)
        with span("env_rgb_observation_generation"), span("env_rgb_rendering"), span("env_rgb_draw_robots"):
            raster.draw_robots(self._sheet, self._layers, robots, self._robots, games, out)
        final = np.full(len(over), None, object)
        for i, picture in zip(games, out.reshape(-1, PICTURE, PICTURE, 3), strict=True):
            final[i] = picture
        return final

    def _draw_robots(self, first: int, last: int, out: Array) -> None:
        games = self._all[first:last]
        raster.draw_robots(self._sheet, self._layers, self._state.robots, self._robots, games, out[first:last])

    def _draw_layers(self) -> None:
        state, layers = self._state, self._layers
        games = np.flatnonzero(state.begun)
        if not len(games):
            return
        with span("env_rgb_draw_grid"):
            raster.draw_grid(self._sheet, layers, games)
        with span("env_rgb_draw_walls"):
            raster.draw_walls(self._sheet, state.walls, layers, games)
        with span("env_rgb_draw_target"):
            raster.draw_target(self._sheet, state.vitals, layers, games)
        state.begun[games] = False
