"""Moved to `hotloop.training.replay`."""

from hotloop.deprecated.forward import forward

__getattr__ = forward(__name__, "hotloop.training.replay")
