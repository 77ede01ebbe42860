"""Snake on a square board, many games stepped as one by a single kernel call.

`config` says what is played and seen, `kernels` plays it, `twin` says the same in plain Python, `vector` and `env` are
the Gymnasium classes, `render` draws.
"""

from hotloop.training.envs.snake.config import FEATURES, Rewards, SnakeConfig
from hotloop.training.envs.snake.env import SnakeEnv
from hotloop.training.envs.snake.vector import SnakeVectorEnv

__all__ = ["FEATURES", "Rewards", "SnakeConfig", "SnakeEnv", "SnakeVectorEnv"]
