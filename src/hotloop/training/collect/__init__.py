"""Collectors run environments and write their steps into a replay.

`InProcess` steps environments in this process. `Workers` steps them in worker processes, each of which writes its own
lanes of a shared replay. `collect(steps)` waits for more steps; `publish(weights)` sends new weights to the policies.
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
