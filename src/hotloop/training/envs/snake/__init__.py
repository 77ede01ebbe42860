"""Snake on a square board; one kernel call steps many games.

`config` holds the options. `kernels` (with `bits`) plays the game on the arrays of `memory_layout`, and `reference` is
the same game in plain Python for tests. `vector` and `env` are the Gymnasium classes, `render` draws.
"""

from hotloop.training.envs.snake.config import FEATURES, Rewards, SnakeConfig
from hotloop.training.envs.snake.env import SnakeEnv
from hotloop.training.envs.snake.vector import SnakeVectorEnv

__all__ = ["FEATURES", "Rewards", "SnakeConfig", "SnakeEnv", "SnakeVectorEnv"]
