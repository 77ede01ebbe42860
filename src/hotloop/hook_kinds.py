"""Kinds of wrappers that hooks put around functions. The recorder writes them, traces are corrected by them."""

from __future__ import annotations

from enum import IntEnum


class Hook(IntEnum):
    """Which wrapper a hook's span is in. Each costs a call something else besides the span."""

    METHOD = 1
    STEP = 2
    QUICK_STEP = 3
    MODULE = 4
