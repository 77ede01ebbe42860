"""Moved to `hotloop.training.collect`."""

from hotloop.deprecated.forward import forward

__getattr__ = forward(__name__, "hotloop.training.collect")
