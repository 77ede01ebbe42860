"""`import hotloop.envs` registers our environments with Gymnasium. They are defined in `hotloop.training.envs`."""

from hotloop.training.envs import CARRACING_ID, MARIO_ID, RICOCHET_ID, SNAKE_ID, register

__all__ = ["CARRACING_ID", "MARIO_ID", "RICOCHET_ID", "SNAKE_ID", "register"]
