"""CarRacing; defined in `hotloop.training.envs.carracing`."""

from hotloop.training.envs.carracing import CarRacingConfig, CarRacingEnv, CarRacingVectorEnv

__all__ = ["CarRacingConfig", "CarRacingEnv", "CarRacingVectorEnv"]
