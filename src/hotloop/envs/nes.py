"""Games on the NES; defined in `hotloop.training.envs.nes`."""

from hotloop.training.envs.nes import MarioConfig, MarioEnv, MarioRewards

__all__ = ["MarioConfig", "MarioEnv", "MarioRewards"]
