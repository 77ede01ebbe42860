"""Snake; defined in `hotloop.training.envs.snake`."""

from hotloop.training.envs.snake import *  # noqa: F403
from hotloop.training.envs.snake import __all__ as __all__
