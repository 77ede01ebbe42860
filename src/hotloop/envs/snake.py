"""Snake; defined in `hotloop.training.envs.snake`."""

from hotloop.training.envs.snake import FEATURES, Rewards, SnakeConfig, SnakeEnv, SnakeVectorEnv

__all__ = ["FEATURES", "Rewards", "SnakeConfig", "SnakeEnv", "SnakeVectorEnv"]
