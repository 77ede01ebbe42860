"""CarRacing: Gymnasium's game and Box2D's physics, drawn many times faster.

`config` says what is played and seen, `game` is Gymnasium's class and reads its state, `kernels` and `raster` draw it,
`twin` says the same in plain Python, `sight` puts a frame together, `env` and `vector` are the Gymnasium classes, the
latter with the processes of `workers`. Importing this needs no Box2D; making an environment does.
"""

from hotloop.training.envs.carracing.config import CarRacingConfig
from hotloop.training.envs.carracing.env import CarRacingEnv
from hotloop.training.envs.carracing.vector import CarRacingVectorEnv

__all__ = ["CarRacingConfig", "CarRacingEnv", "CarRacingVectorEnv"]
