"""Collectors: how experience gets from environments into replay, behind one small interface.

`InProcess` steps environments in this process; `Workers` in processes of their own, each of which writes its own
stripes of a shared replay. `collect(steps)` goes on until so many more steps are there, `publish(weights)` hands new
weights out.
"""

from __future__ import annotations

from hotloop.training.collect.in_process import InProcess
from hotloop.training.collect.interface import (
    Collected,
    CollectError,
    Collector,
    Episode,
    Job,
    Policy,
    Recipe,
    Restart,
    Spent,
)
from hotloop.training.collect.workers import WorkerOptions, Workers

__all__ = [
    "CollectError",
    "Collected",
    "Collector",
    "Episode",
    "InProcess",
    "Job",
    "Policy",
    "Recipe",
    "Restart",
    "Spent",
    "WorkerOptions",
    "Workers",
]
