"""Moved to `hotloop.training.agents.load`."""

from hotloop.deprecated.forward import forward

__getattr__ = forward(__name__, "hotloop.training.agents.load")
