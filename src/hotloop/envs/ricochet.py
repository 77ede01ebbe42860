"""Ricochet Robots; defined in `hotloop.training.envs.ricochet`."""

from hotloop.training.envs.ricochet import (
    LEVELS,
    OBSERVATIONS,
    Level,
    Puzzles,
    Rewards,
    RicochetConfig,
    RicochetEnv,
    RicochetVectorEnv,
    Solution,
    solve,
)

__all__ = [
    "LEVELS",
    "OBSERVATIONS",
    "Level",
    "Puzzles",
    "Rewards",
    "RicochetConfig",
    "RicochetEnv",
    "RicochetVectorEnv",
    "Solution",
    "solve",
]
