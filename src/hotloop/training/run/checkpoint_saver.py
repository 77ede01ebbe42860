"""A run's checkpoints while it trains. One that cannot be written is a warning, and the next one is tried again.

A training that has diverged is not saved: nothing could read it, and it would push the good ones out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.files import resolved
from hotloop.training.run import checkpoint


class Saver:
    """Writes the checkpoints of a run directory.

    Attributes:
        last: The newest one that was written.

    Args:
        run: The run directory.
        keep: How many to keep besides the best.
        warn: Shows a line to the user.
    """

    def __init__(self, run: Path, keep: int, warn: Callable[[str], None]) -> None:
        self.last: Path | None = None
        self._run, self._keep, self._warn = run, keep, warn
        self._has_diverged = False

    def save(self, env_steps: int, groups: checkpoint.Groups, meta: Mapping[str, Any], ends: bool = False) -> bool:
        """Write the checkpoint of a step and remove older ones; return whether it was written.

        Args:
            env_steps: Of the step.
            groups: Arrays by group and name.
            meta: What JSON holds.
            ends: Whether the training ends with it.
        """
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

    def mark_best(self) -> None:
        """Let `best` point to the newest checkpoint."""
        assert self.last is not None
        try:
            checkpoint.mark_best(self.last)
        except OSError as error:
            self._warn(f"cannot mark {self.last} as the best ({reason_of(error)}): training goes on")

    def continue_from(self, source: Path, env_steps: int) -> None:
        """Take along the checkpoint that is resumed, so that this run alone can be resumed too, and the best so far.

        Args:
            source: The checkpoint that is resumed.
            env_steps: Its steps.
        """
        mine, before = checkpoint.step_path(self._run, env_steps), resolved(source)
        try:
            checkpoint.bring(before, mine)
            self.last = mine
            best = resolved(before.parent / checkpoint.BEST)
            steps = checkpoint.step_of(best)
            if best == before:
                self.mark_best()
            elif best.is_dir() and steps is not None and steps < env_steps:
                checkpoint.bring(best, checkpoint.step_path(self._run, steps))
                checkpoint.mark_best(checkpoint.step_path(self._run, steps))
        except (OSError, checkpoint.CheckpointUnreadable) as error:
            reason = reason_of(error) if isinstance(error, OSError) else error
            self._warn(f"cannot take along the checkpoints of {before.parent} ({reason}): keep them")

    def describe_divergence(self, env_steps: int, what: str) -> str:
        """Return why a state is not saved, and what to do."""
        kept = "there is none before it" if self.last is None else f"the last good checkpoint is kept, {self.last}"
        return (
            f"weights are not finite at {env_steps:,} steps ({what}), and are not saved: "
            f"lower the learning rate; {kept}"
        )

    def _outlook(self, ends: bool) -> str:
        """Say what a checkpoint that was not written means, and what to do."""
        newest = "no checkpoint was written" if self.last is None else f"the newest is {self.last}"
        if ends:
            return f"the training since the last one is lost, and {newest}; make room, and resume or train again"
        return f"training goes on and tries again at the next one; make room, or check the rights ({newest})"


def not_finite(groups: checkpoint.Groups) -> str | None:
    """Return which number is not finite and where, None if all are."""
    for group, arrays in groups.items():
        for name, array in arrays.items():
            values = np.asarray(array)
            if values.dtype.kind == "f" and values.size:
                # Of numbers that are not all finite, the smallest or the largest is not finite.
                for value in (values.min(), values.max()):
                    if not np.isfinite(value):
                        return f"{value} in {group} {name}"
    return None


def reason_of(error: OSError) -> str:
    """Return what the system says went wrong, without file names."""
    return error.strerror or str(error)
