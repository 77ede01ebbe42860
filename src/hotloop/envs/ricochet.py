"""Ricochet Robots; defined in `hotloop.training.envs.ricochet`."""

from hotloop.training.envs.ricochet import *  # noqa: F403
from hotloop.training.envs.ricochet import __all__ as __all__
