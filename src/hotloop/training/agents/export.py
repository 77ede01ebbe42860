"""An agent alone: a checkpoint without what only training needs, small enough to ship. It plays, but cannot go on.

Left out are replay, environments, random states and Adam's moments; the networks are there as they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hotloop.errors import HotloopError
from hotloop.training.run import checkpoint
from hotloop.training.run.resume import ALONE, read_saved

if TYPE_CHECKING:
    from hotloop.training.learn.learner import Learner

MOMENTS = (".adam_mean.", ".adam_square.")
KEPT = ("pipeline", "config", "counts", "best")
"""What is kept of the description."""


def save_agent(path: str | PathLike[str], to: str | PathLike[str]) -> Path:
    """Save the agent of a checkpoint alone.

    Args:
        path: A run directory (its best checkpoint is taken) or a checkpoint.
        to: The directory to make.

    Raises:
        HotloopError: The directory is there already, or cannot be made.
    """
    saved, target = read_saved(Path(path), only=["learner"], of_run_best=True), Path(to)
    if target.exists():
        raise HotloopError(f"{target} is there already: name a new directory for the agent, or remove it")
    arrays = {name: array for name, array in saved.group("learner").items() if not _is_moment(name)}
    meta = {name: saved.meta.get(name) for name in KEPT}
    try:
        checkpoint.write(target, {"learner": arrays}, meta | {ALONE: True})
    except OSError as error:
        raise HotloopError(f"cannot write {target} ({error.strerror or error}): name another directory") from error
    return target


def with_moments(saved: Mapping[str, np.ndarray], learner: Learner) -> dict[str, np.ndarray]:
    """Return what an agent saved alone holds as its learner takes it: with the moments of this one, which is new."""
    own = {name: array for name, array in learner.tensors().items() if _is_moment(name)}
    return own | dict(saved)


def _is_moment(name: str) -> bool:
    return any(word in name for word in MOMENTS)
