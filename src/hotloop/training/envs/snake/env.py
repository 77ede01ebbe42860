"""One game of Snake behind Gymnasium's `Env`."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import AutoresetMode

from hotloop.training.envs.kernel_vector import RENDER_MODES, SingleEnv
from hotloop.training.envs.snake.vector import SnakeVectorEnv


class SnakeEnv(SingleEnv):
    """One game of Snake. It plays the same game as the one in `SnakeVectorEnv` with the same seed.

    `info` has score, length and steps, and at the end of an episode its cause.

    Args:
        render_mode: "rgb_array", "ansi" or None.
        options: The fields of `SnakeConfig`: board, features, actions, max_steps, tail_free, rewards.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 12}  # noqa: RUF012 as Gymnasium has it

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        game = SnakeVectorEnv(1, render_mode=render_mode, autoreset_mode=AutoresetMode.DISABLED, **options)
        super().__init__(game)
        self.config = game.config
