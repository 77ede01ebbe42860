"""Gymnasium environments, written to be stepped in large numbers.

Importing this package registers them, by name only: numba and the kernels are loaded when one is made. Gymnasium
dropped its plugin entry point in version 1.0, so `gymnasium.make("hotloop/Snake-v0")` needs this import first, or
the form that does it, `gymnasium.make("hotloop.envs:hotloop/Snake-v0")`.
"""

from __future__ import annotations

import gymnasium

SNAKE_ID = "hotloop/Snake-v0"
CARRACING_ID = "hotloop/CarRacing-v0"
RICOCHET_ID = "hotloop/Ricochet-v0"
MARIO_ID = "hotloop/Mario-v0"


def register() -> None:
    """Make the environments known to Gymnasium. Calling it again changes nothing."""
    if SNAKE_ID not in gymnasium.registry:
        gymnasium.register(
            id=SNAKE_ID,
            entry_point="hotloop.training.envs.snake.env:SnakeEnv",
            vector_entry_point="hotloop.training.envs.snake.vector:SnakeVectorEnv",
        )
    if CARRACING_ID not in gymnasium.registry:
        gymnasium.register(
            id=CARRACING_ID,
            entry_point="hotloop.training.envs.carracing.env:CarRacingEnv",
            vector_entry_point="hotloop.training.envs.carracing.vector:CarRacingVectorEnv",
            reward_threshold=900,
        )
    if RICOCHET_ID not in gymnasium.registry:
        gymnasium.register(
            id=RICOCHET_ID,
            entry_point="hotloop.training.envs.ricochet.env:RicochetEnv",
            vector_entry_point="hotloop.training.envs.ricochet.vector:RicochetVectorEnv",
        )
    # No vector form: the core allows one emulator a process, so many of them are many processes (see collect).
    if MARIO_ID not in gymnasium.registry:
        gymnasium.register(id=MARIO_ID, entry_point="hotloop.training.envs.nes.mario:MarioEnv")


register()
