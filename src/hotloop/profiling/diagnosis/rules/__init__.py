"""The rules: each module below is one, with a function `find(loop) -> list[Cause]`. They know nothing of each other.

A rule is added by adding its file: it is discovered here, and its docstring is its section in docs/rules.md.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def _discover() -> tuple[ModuleType, ...]:
    found = pkgutil.walk_packages(__path__, f"{__name__}.")
    return tuple(importlib.import_module(each.name) for each in found if not each.ispkg)


RULES = _discover()
