"""Exports an agent: a checkpoint without what only training needs. It can be played but not resumed.

It has the networks, but no replay, environments, random states or Adam moments.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hotloop.errors import HotloopError
from hotloop.training.run import checkpoint
from hotloop.training.run.saved_training import ALONE, read_saved

if TYPE_CHECKING:
    from hotloop.training.learn.learner import KernelLearner

MOMENTS = (".adam_mean.", ".adam_square.")
KEPT = ("pipeline", "config", "counts", "best")
"""JSON values to keep."""


def save_agent(path: str | PathLike[str], to: str | PathLike[str]) -> Path:
    """Save only the agent of a checkpoint, or of a run directory's best one, into the new directory `to`."""
    saved, target = read_saved(Path(path), only=["learner"], of_run_best=True), Path(to)
    if target.exists():
        raise HotloopError(f"{target} exists already: name a new directory for the agent, or remove it")
    arrays = {name: array for name, array in saved.group("learner").items() if not _is_moment(name)}
    meta = {name: saved.meta.get(name) for name in KEPT}
    try:
        checkpoint.write(target, {"learner": arrays}, meta | {ALONE: True})
    except OSError as error:
        raise HotloopError(f"cannot write {target} ({error.strerror or error}): name another directory") from error
    return target


def with_moments(saved: Mapping[str, np.ndarray], learner: KernelLearner) -> dict[str, np.ndarray]:
    """Return the arrays of an exported agent, completed with the Adam moments of this new learner."""
    own = {name: array for name, array in learner.tensors().items() if _is_moment(name)}
    return own | dict(saved)


def _is_moment(name: str) -> bool:
    return any(word in name for word in MOMENTS)
