"""Ricochet Robots; one kernel call steps many boards.

`config` holds the options. `board_kernels` makes boards and `kernels` plays them, on the arrays of `memory_layout`.
`solver` solves boards, `puzzle` holds them as arrays, `puzzle_bank` stores solved ones on disk. `raster` draws,
`rgb_observation` and `render` use it. `reference` and `raster_reference` are the same in plain Python, for tests.
`vector` and `env` are the Gymnasium classes.
"""

from hotloop.training.envs.ricochet.config import LEVELS, OBSERVATIONS, Level, Rewards, RicochetConfig
from hotloop.training.envs.ricochet.env import RicochetEnv
from hotloop.training.envs.ricochet.puzzle import Puzzles
from hotloop.training.envs.ricochet.solver import Solution, solve
from hotloop.training.envs.ricochet.vector import RicochetVectorEnv

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
