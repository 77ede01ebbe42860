"""Documented module names of version 0.1 keep working for one version.

`hotloop/__init__.py` puts this folder on the package's path: `hotloop.replay` is the file `replay.py` here.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any


def forward(old: str, new: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that was moved."""

    def find(name: str) -> Any:
        if name.startswith("__"):  # looked up by the import system
            raise AttributeError(name)
        warnings.warn(f"{old} is deprecated: import {new}", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(new), name)

    return find
