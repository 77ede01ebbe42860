"""CarRacing; defined in `hotloop.training.envs.carracing`."""

from hotloop.training.envs.carracing import *  # noqa: F403
from hotloop.training.envs.carracing import __all__ as __all__
