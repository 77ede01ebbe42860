"""Saves checkpoints during a run. If one cannot be written, the user is warned and the next one is tried.

A training that has diverged is not saved: it could not be loaded, and it would displace good checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from hotloop.files import resolved
from hotloop.json_types import Json
from hotloop.training.run import checkpoint


class Saver:
    """Writes the checkpoints of a run directory, and keeps the newest ones besides the best.

    Attributes:
        last: The newest checkpoint.
        best: Highest evaluation score that has a checkpoint.
    """

    def __init__(self, run: Path, keep: int, warn: Callable[[str], None]) -> None:
        self.last: Path | None = None
        self.best: float | None = None
        self._run, self._keep, self._warn = run, keep, warn
        self._has_diverged = False

    def save(self, env_steps: int, groups: checkpoint.Groups, meta: Mapping[str, Json], ends: bool = False) -> bool:
        """Write the checkpoint of a step and remove older ones; return whether it was written. `ends` if it is last."""
        path = checkpoint.step_path(self._run, env_steps)
        wrong = not_finite(groups)
        if wrong is not None:
            if not self._has_diverged:  # weights that are not finite stay so: warn once
                self._warn(self.describe_divergence(env_steps, wrong))
            self._has_diverged = True
            return False
        self._has_diverged = False
        try:
            checkpoint.write(path, groups, meta)
        except OSError as error:
            self._warn(f"cannot write checkpoint {path} ({reason_of(error)}): {self._outlook(ends)}")
            return False
        self.last = path
        try:
            checkpoint.keep_last(self._run, self._keep)
        except OSError as error:
            self._warn(f"cannot remove old checkpoints of {self._run} ({reason_of(error)}): remove them by hand")
        return True

    def offer(self, score: float, save: Callable[[], bool]) -> None:
        """If an agent's evaluation score is the highest so far, save it and mark its checkpoint as the best."""
        if not math.isfinite(score) or (self.best is not None and score <= self.best):
            return
        before, self.best = self.best, score
        if save():
            self._mark_best()
        else:
            self.best = before  # that agent is lost, so another may become the best

    def _mark_best(self) -> None:
        """Mark the newest checkpoint as the best."""
        assert self.last is not None
        try:
            checkpoint.mark_best(self.last)
        except OSError as error:
            self._warn(f"cannot mark {self.last} as the best ({reason_of(error)}): training continues")

    def continue_from(self, source: Path, env_steps: int) -> None:
        """Copy the checkpoint `source` that is resumed, and the best so far, so that this run can be resumed too."""
        mine, before = checkpoint.step_path(self._run, env_steps), resolved(source)
        try:
            checkpoint.bring(before, mine)
            self.last = mine
            best = resolved(before.parent / checkpoint.BEST)
            steps = checkpoint.step_of(best)
            if best == before:
                self._mark_best()
            elif best.is_dir() and steps is not None and steps < env_steps:
                checkpoint.bring(best, checkpoint.step_path(self._run, steps))
                checkpoint.mark_best(checkpoint.step_path(self._run, steps))
        except (OSError, checkpoint.CheckpointUnreadable) as error:
            reason = reason_of(error) if isinstance(error, OSError) else error
            self._warn(f"cannot copy the checkpoints of {before.parent} ({reason}): keep them")

    def describe_divergence(self, env_steps: int, what: str) -> str:
        """Return why the state is not saved, and the remedy."""
        kept = "there is none before it" if self.last is None else f"the last good checkpoint is kept, {self.last}"
        return (
            f"weights are not finite at {env_steps:,} steps ({what}), and are not saved: "
            f"lower the learning rate; {kept}"
        )

    def _outlook(self, ends: bool) -> str:
        """Return the consequence of a checkpoint that could not be written, and the remedy."""
        newest = "no checkpoint was written" if self.last is None else f"the newest is {self.last}"
        if ends:
            return f"the training since the last one is lost, and {newest}; make room, and resume or train again"
        return f"training continues and tries again at the next one; make room, or check the permissions ({newest})"


def not_finite(groups: checkpoint.Groups) -> str | None:
    """Return which number is not finite and where; None if all are finite."""
    for group, arrays in groups.items():
        for name, array in arrays.items():
            values = np.asarray(array)
            if values.dtype.kind == "f" and values.size:
                # If any number is not finite, the minimum or the maximum is not.
                for value in (values.min(), values.max()):
                    if not np.isfinite(value):
                        return f"{value} in {group} {name}"
    return None


def reason_of(error: OSError) -> str:
    """Return the system's error message, without file names."""
    return error.strerror or str(error)
