"""The pipelines by name. Listing them imports nothing heavy."""

from __future__ import annotations

import importlib
from types import ModuleType

from hotloop.errors import HotloopError

PIPELINES: dict[str, str] = {
    "dqn-snake": "a Q network learns Snake from replay: double, dueling, noisy, prioritised, n-step, categorical",
    "dqn-mario": "a Q network learns a side-scroller on an NES from frames: double, dueling, prioritised, n-step",
    "ppo-snake": "proximal policy optimisation learns Snake from fresh rollouts",
    "ppo-ricochet": "proximal policy optimisation learns to solve Ricochet Robots, with or without memory",
    "sac-carracing": "soft actor-critic learns to drive, from pixels or from numbers",
}
"""Name of each pipeline on the command line, and what it does."""


def pipeline(name: str) -> ModuleType:
    """Return the module of a pipeline, which has `Config`, `PRESETS`, `Agent` and `train`."""
    if name not in PIPELINES:
        raise HotloopError(f"unknown pipeline {name!r}: use one of {', '.join(PIPELINES)}")
    return importlib.import_module(f"hotloop.training.pipelines.{name.replace('-', '_')}")


def task(name: str) -> ModuleType:
    """Return the module in `tasks` of the game that a pipeline plays."""
    return importlib.import_module(f"hotloop.training.tasks.{name.partition('-')[2]}")
