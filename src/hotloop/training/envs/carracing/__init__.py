"""CarRacing: Gymnasium's game and Box2D's physics, drawn many times faster.

`config` holds the options. `game` is Gymnasium's class and reads its state into the arrays of `memory_layout`.
`kernels`, `raster` and `score_digits` draw, and `observation` puts a frame together; `reference` is the same in plain
Python, for tests. `env` and `vector` are the Gymnasium classes; `vector` steps the cars of an `env_batch`, here or in
`workers`. `centre_line_driver` drives without learning. Importing this package does not need Box2D; making an
environment does.
"""

from hotloop.training.envs.carracing.config import CarRacingConfig
from hotloop.training.envs.carracing.env import CarRacingEnv
from hotloop.training.envs.carracing.vector import CarRacingVectorEnv

__all__ = ["CarRacingConfig", "CarRacingEnv", "CarRacingVectorEnv"]
