"""Moved to `hotloop.training.agents.export`."""

from hotloop.deprecated.forward import forward

__getattr__ = forward(__name__, "hotloop.training.agents.export")
