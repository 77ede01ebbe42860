"""Ricochet Robots, many boards stepped as one by a single kernel call.

`config` says what is played and seen; `boards` makes boards, `kernels` plays them, `raster` draws them, `solver` solves
them and `bank` keeps solved ones; `twin` says the same in plain Python; `vector` and `env` are the Gymnasium classes.
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
