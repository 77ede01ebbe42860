"""Moved to `hotloop.training.run.options`."""

from hotloop.deprecated.forward import forward

__getattr__ = forward(__name__, "hotloop.training.run.options")
