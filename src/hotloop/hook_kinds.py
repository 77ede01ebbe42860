"""Kinds of wrappers that hooks put around functions. Their overhead is subtracted from traces."""

from __future__ import annotations

from enum import IntEnum


class Hook(IntEnum):
    """The wrapper around a hook's span. Each kind has its own overhead besides the span."""

    METHOD = 1
    STEP = 2
    QUICK_STEP = 3
    MODULE = 4
