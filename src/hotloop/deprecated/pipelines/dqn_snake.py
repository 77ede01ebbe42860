"""Moved to `hotloop.training.pipelines.dqn_snake`."""

from hotloop.deprecated.forward import forward

__getattr__ = forward(__name__, "hotloop.training.pipelines.dqn_snake")
