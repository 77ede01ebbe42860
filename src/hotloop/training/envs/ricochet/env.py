"""One board of Ricochet Robots behind Gymnasium's `Env`."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import AutoresetMode

from hotloop.training.envs.kernel_vector import RENDER_MODES, SingleEnv
from hotloop.training.envs.ricochet.puzzle import Puzzles
from hotloop.training.envs.ricochet.vector import RicochetVectorEnv


class RicochetEnv(SingleEnv):
    """One board. It plays the same boards as the lane of `RicochetVectorEnv` with the same seed.

    `info` has steps and optimal length, and at the end of an episode its cause. `reset` plays the board of
    `options={"puzzles": Puzzles}`, which holds one, or a new board.

    Args:
        render_mode: "rgb_array", "ansi" or None.
        options: The fields of `RicochetConfig`: size, robots, observation, level, bank, held_out, noop, max_steps,
            rewards.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 4}  # noqa: RUF012 as Gymnasium has it

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        self._board = RicochetVectorEnv(1, render_mode=render_mode, autoreset_mode=AutoresetMode.DISABLED, **options)
        super().__init__(self._board)
        self.config = self._board.config

    def puzzles(self) -> Puzzles:
        """Return the board with the current positions of the robots."""
        return self._board.puzzles()
