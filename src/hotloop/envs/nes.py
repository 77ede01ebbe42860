"""Games on the NES; defined in `hotloop.training.envs.nes`."""

from hotloop.training.envs.nes import *  # noqa: F403
from hotloop.training.envs.nes import __all__ as __all__
