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


GAMES = {
    SNAKE_ID: ("snake.env:SnakeEnv", "snake.vector:SnakeVectorEnv", None),
    CARRACING_ID: ("carracing.env:CarRacingEnv", "carracing.vector:CarRacingVectorEnv", 900),
    RICOCHET_ID: ("ricochet.env:RicochetEnv", "ricochet.vector:RicochetVectorEnv", None),
    # No vector form: the core allows one emulator per process. `training/collect` runs many of them in workers.
    MARIO_ID: ("nes.mario:MarioEnv", None, None),
}
"""For each environment: its class, its vector form, and the return at which it counts as solved."""


def register() -> None:
    """Register the environments with Gymnasium. Calling it again does nothing."""
    for name, (single, vector, solved_at) in GAMES.items():
        if name not in gymnasium.registry:
            gymnasium.register(
                id=name,
                entry_point=f"{__name__}.{single}",
                vector_entry_point=vector and f"{__name__}.{vector}",
                reward_threshold=solved_at,
            )


register()
