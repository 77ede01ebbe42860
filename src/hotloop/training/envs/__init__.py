"""Gymnasium environments built for stepping many at once.

Importing this package registers their names only; numba and the kernels are loaded when an environment is made. As
Gymnasium 1.0 has no plugin entry point, `gymnasium.make("hotloop/Snake-v0")` works only after this import;
`gymnasium.make("hotloop.envs:hotloop/Snake-v0")` imports it by itself.
"""

from __future__ import annotations

import gymnasium

SNAKE_ID = "hotloop/Snake-v0"
CARRACING_ID = "hotloop/CarRacing-v0"
RICOCHET_ID = "hotloop/Ricochet-v0"
MARIO_ID = "hotloop/Mario-v0"


def register() -> None:
    """Register the environments with Gymnasium. Calling it again does nothing."""
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
    # No vector form: the core allows one emulator per process. `training/collect` runs many of them in workers.
    if MARIO_ID not in gymnasium.registry:
        gymnasium.register(id=MARIO_ID, entry_point="hotloop.training.envs.nes.mario:MarioEnv")


register()
