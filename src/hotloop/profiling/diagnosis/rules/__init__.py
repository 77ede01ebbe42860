"""The rules: each module below is one, with a function `find(loop) -> Causes`. They know nothing of each other.

To add a rule, add its file, its test and a case in `zoo` that shows it. The file is discovered here. Then run
`python docs/make_rules.py`: the rule's docstring and advice become its section in docs/rules.md.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from dataclasses import replace
from types import ModuleType

from hotloop.profiling.diagnosis.finding import Causes
from hotloop.profiling.diagnosis.time_slices import Loop


def _discover() -> tuple[ModuleType, ...]:
    found = pkgutil.walk_packages(__path__, f"{__name__}.")
    return tuple(importlib.import_module(each.name) for each in found if not each.ispkg)


RULES = _discover()


def rule_name(rule: ModuleType) -> str:
    """Return the name of a rule: that of its file."""
    return rule.__name__.rpartition(".")[2]


def find_causes(loop: Loop, rules: Iterable[ModuleType] = RULES) -> Causes:
    """Yield what the rules find."""
    for rule in rules:
        for cause in rule.find(loop):
            yield replace(cause, rule=rule_name(rule), advice=cause.advice or rule.ADVICE)
