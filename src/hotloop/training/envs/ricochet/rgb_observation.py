"""The `rgb` observation: a static layer per board, drawn when its episode starts, and a picture for each step.

The spans have the same names as in the profiler study, so that recordings can be compared with it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hotloop.spans import span
from hotloop.training.array_pool import ArrayPool
from hotloop.training.envs.gym_types import Flags
from hotloop.training.envs.kernel_vector import LaneThreads
from hotloop.training.envs.ricochet import raster
from hotloop.training.envs.ricochet.config import PICTURE, RicochetConfig
from hotloop.training.envs.ricochet.memory_layout import State

BYTES = 3 * PICTURE * PICTURE


class Pictures:
    """Draws all boards of an environment."""

    def __init__(self, state: State, config: RicochetConfig, threads: LaneThreads) -> None:
        self._state, self._robots, self._threads = state, config.robots, threads
        self._sheet = raster.canvas(config.size, PICTURE)
        self._layers = np.empty((len(state.vitals), BYTES), np.uint8)
        self._pool = ArrayPool(self._layers.shape, np.uint8)
        self._all = np.arange(len(state.vitals))

    def draw(self) -> NDArray[np.uint8]:
        """Return a picture of every board, uint8 [N, P, P, 3]."""
        with span("env_rgb_observation_generation"):
            out = self._pool.take()
            with span("env_rgb_rendering"):
                self._draw_layers()
                with span("env_rgb_draw_robots"):
                    self._threads.run(lambda k, first, last: self._draw_robots(first, last, out))
            return out.reshape(-1, PICTURE, PICTURE, 3)

    def draw_final(self, robots: NDArray[np.uint8], over: Flags) -> NDArray[np.object_]:
        """Return pictures of the boards whose episode is over, objects [N]. Call it before `draw` replaces layers."""
        games = np.flatnonzero(over)
        out = np.empty((len(games), BYTES), np.uint8)
        with span("env_rgb_observation_generation"), span("env_rgb_rendering"), span("env_rgb_draw_robots"):
            raster.draw_robots(self._sheet, self._layers, robots, self._robots, games, out)
        final = np.full(len(over), None, object)
        for i, picture in zip(games, out.reshape(-1, PICTURE, PICTURE, 3), strict=True):
            final[i] = picture
        return final

    def _draw_robots(self, first: int, last: int, out: NDArray[np.uint8]) -> None:
        games = self._all[first:last]
        raster.draw_robots(self._sheet, self._layers, self._state.robots, self._robots, games, out[first:last])

    def _draw_layers(self) -> None:
        state, layers = self._state, self._layers
        games = np.flatnonzero(state.needs_redraw)
        if not len(games):
            return
        with span("env_rgb_draw_grid"):
            raster.draw_grid(self._sheet, layers, games)
        with span("env_rgb_draw_walls"):
            raster.draw_walls(self._sheet, state.walls, layers, games)
        with span("env_rgb_draw_target"):
            raster.draw_target(self._sheet, state.vitals, layers, games)
        state.needs_redraw[games] = False
