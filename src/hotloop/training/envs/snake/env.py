"""One game of Snake behind Gymnasium's `Env`: a vector of one, so that there is one set of rules."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from hotloop.training.envs.snake.vector import RENDER_MODES, SnakeVectorEnv

Array = NDArray[Any]


class SnakeEnv(gymnasium.Env[Array, int]):
    """One game of Snake. With a seed it plays the same game as the one that `SnakeVectorEnv` gives that seed.

    Args:
        render_mode: "rgb_array", "ansi" or None.
        options: The fields of `SnakeConfig`: board, features, actions, max_steps, tail_free, rewards.
    """

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 12}  # noqa: RUF012 as Gymnasium has it

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        self._games = SnakeVectorEnv(1, render_mode=render_mode, autoreset_mode=AutoresetMode.DISABLED, **options)
        self.config = self._games.config
        self.render_mode = render_mode
        self.observation_space = self._games.single_observation_space
        self.action_space = self._games.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin an episode; without a seed the random numbers go on."""
        super().reset(seed=seed)
        observations, infos = self._games.reset(seed=seed)
        return observations[0], _first(infos)

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Play one action; `info` has score, length and steps, and at the end of an episode its cause."""
        observations, rewards, terminated, truncated, infos = self._games.step(np.array([action]))
        return observations[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), _first(infos)

    def get_state(self) -> dict[str, Array]:
        """Return a copy of the game, from which `set_state` goes on with exactly the same results."""
        return self._games.get_state()

    def set_state(self, state: dict[str, Array]) -> None:
        """Go on from what `get_state` returned."""
        self._games.set_state(state)

    def render(self) -> Any:
        """Return a picture of the game: uint8 [H, W, 3] or text, as `render_mode` says."""
        frames = self._games.render()
        return None if frames is None else frames[0]


def _first(infos: dict[str, Any]) -> dict[str, Any]:
    info = {name: int(infos[name][0]) for name in ("score", "length", "steps")}
    return info | {"cause": infos["cause"][0]} if "cause" in infos else info
