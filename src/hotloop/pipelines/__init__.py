"""The training pipelines: one flat file each, made of the parts of `envs`, `replay` and `learn`.

This module only knows their names, so that listing them imports nothing heavy.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from hotloop.errors import HotloopError

if TYPE_CHECKING:
    from hotloop.pipelines.agents import load_agent

__all__ = ["PIPELINES", "game", "load_agent", "pipeline"]

PIPELINES: dict[str, str] = {
    "dqn-snake": "a Q network learns Snake from replay: double, dueling, noisy, prioritised, n-step, categorical",
    "dqn-mario": "a Q network learns a side-scroller on an NES from frames: double, dueling, prioritised, n-step",
    "ppo-snake": "proximal policy optimisation learns Snake from fresh rollouts",
    "ppo-ricochet": "proximal policy optimisation learns to solve Ricochet Robots, with or without memory",
    "sac-carracing": "soft actor-critic learns to drive, from pixels or from numbers",
}
"""Each pipeline's name on the command line, and what it is."""


def pipeline(name: str) -> ModuleType:
    """Return the module of a pipeline: `Config`, `PRESETS`, `Agent`, `train`.

    Raises:
        HotloopError: There is none of that name.
    """
    if name not in PIPELINES:
        raise HotloopError(f"unknown pipeline {name!r}: use one of {', '.join(PIPELINES)}")
    return importlib.import_module(f"hotloop.pipelines.{name.replace('-', '_')}")


def game(name: str) -> ModuleType:
    """Return the module of the game that a pipeline plays; see `games`."""
    return importlib.import_module(f"hotloop.pipelines.{name.partition('-')[2]}")


def __getattr__(name: str) -> object:
    if name == "load_agent":
        from hotloop.pipelines.agents import load_agent

        return load_agent
    raise AttributeError(f"module 'hotloop.pipelines' has no attribute {name!r}")
