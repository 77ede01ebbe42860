"""The checkpoint of a training as its pipeline reads it: what every one of them holds, checked once, here.

Networks, replay buffers and environments check the arrays that they load against their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.errors import HotloopError
from hotloop.files import resolved
from hotloop.training.run import checkpoint
from hotloop.training.run.counts import Counts
from hotloop.training.state_checks import StateUnreadable, object_in, random_state, require_state, text_in

ALONE = "agent_only"
"""Says in a checkpoint's description that it holds an agent alone."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint of a training."""

    path: Path
    pipeline: str
    config: Mapping[str, Any]
    counts: Counts
    best: float | None
    """Greedy score of the best checkpoint so far."""
    agent_only: bool
    meta: Mapping[str, Any]
    """All of it, with what a pipeline put in for itself."""
    groups: checkpoint.Groups

    def group(self, name: str) -> dict[str, np.ndarray]:
        """Return a group of arrays; the dictionary is the caller's."""
        if name not in self.groups:
            raise HotloopError(f"{self.path} has no {name!r}: use another checkpoint")
        return dict(self.groups[name])

    def random_state(self) -> dict[str, Any]:
        """Return the state of the training's random generator, for `bit_generator.state`."""
        return random_state(self.meta.get("rng"))

    def check_lanes(self, lanes: int) -> None:
        """Refuse a configuration with more environments than were saved, before anything is built for them."""
        found = self.group("episodes").get("length")
        require_state(found is not None and found.shape == (lanes,), f"it is not of {lanes} environments")


def read_saved(path: Path, only: Collection[str] | None = None, *, of_run_best: bool = False) -> Saved:
    """Read the checkpoint that a user means.

    Args:
        path: A checkpoint, or a run directory.
        only: The groups of arrays to read; all if not given.
        of_run_best: Of a run directory take the best checkpoint, not the last.

    Raises:
        HotloopError: There is none, or it is damaged.
    """
    found = checkpoint.read(checkpoint.find(path, best=of_run_best), only)
    meta = found.meta
    try:
        best = meta.get("best")
        require_state(best is None or type(best) in (int, float), "the best score is no number")
        alone = meta.get(ALONE, False)
        require_state(isinstance(alone, bool), f"{ALONE} is neither true nor false")
        counts = Counts.of(object_in(meta, "counts"))
        _check_counts(counts, found, alone)
        return Saved(
            path=found.path,
            pipeline=text_in(meta, "pipeline"),
            config=object_in(meta, "config"),
            counts=counts,
            best=best,
            agent_only=alone,
            meta=meta,
            groups=found.groups,
        )
    except StateUnreadable as error:
        raise checkpoint.CheckpointUnreadable(f"{found.path}: {error}") from error


def _check_counts(counts: Counts, found: checkpoint.Checkpoint, alone: bool) -> None:
    """Refuse counts that contradict each other, the name of the checkpoint, or its arrays, as far as they were read."""
    require_state(counts.frames >= counts.env_steps, f"{counts.frames} frames in {counts.env_steps} steps")
    require_state(counts.episodes <= counts.env_steps, f"{counts.episodes} episodes in {counts.env_steps} steps")
    named = None if alone else checkpoint.step_of(resolved(found.path))
    require_state(named in (None, counts.env_steps), f"{counts.env_steps} steps in a checkpoint of step {named}")
    for name, group, array in (("updates", "learner", "updates"), ("episodes", "episodes", "ended")):
        held, counted = found.groups.get(group, {}).get(array), getattr(counts, name)
        # A wrong shape or type is refused by the code that loads it.
        if held is not None and held.shape == () and held.dtype.kind == "i":
            require_state(int(held) == counted, f"{counted} {name}, of which its {group} has seen {int(held)}")
