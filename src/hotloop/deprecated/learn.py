"""Moved to `hotloop.training.learn`."""

from hotloop.deprecated.forward import forward

__getattr__ = forward(__name__, "hotloop.training.learn")
