"""Reading the checkpoint of a training: checks what all pipelines store.

Networks, replay buffers and environments check the arrays that they load themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.errors import HotloopError
from hotloop.files import resolved
from hotloop.json_types import Json
from hotloop.training.run import checkpoint
from hotloop.training.run.checkpoint_files import Arrays
from hotloop.training.run.counts import Counts
from hotloop.training.state_checks import StateUnreadable, object_in, random_state, require_state, text_in

ALONE = "agent_only"
"""Key of the checkpoint's JSON: whether it holds only an agent."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint of a training."""

    path: Path
    pipeline: str
    config: Mapping[str, Json]
    counts: Counts
    best: float | None
    """Greedy score of the best checkpoint so far."""
    agent_only: bool
    meta: Mapping[str, Json]
    """The whole JSON object, including values of the particular pipeline."""
    groups: checkpoint.Groups

    def group(self, name: str) -> dict[str, np.ndarray]:
        """Return a group of arrays, in a new dictionary."""
        if name not in self.groups:
            raise HotloopError(f"{self.path} has no {name!r}: use another checkpoint")
        return dict(self.groups[name])

    def random_state(self) -> dict[str, Json]:
        """Return the state of the training's random generator, for `bit_generator.state`."""
        return random_state(self.meta.get("rng"))

    def check_lanes(self, lanes: int) -> None:
        """Reject a configuration with another number of environments, before anything is built for them."""
        found = self.group("episodes").get("length")
        require_state(found is not None and found.shape == (lanes,), f"it is not of {lanes} environments")


def common_state(training: Any) -> tuple[dict[str, Arrays], dict[str, Json]]:
    """Return the state of what all trainings have: learner, replay buffer if any, episodes, random generator."""
    groups: dict[str, Arrays] = {"learner": training.agent.learner.tensors(), "episodes": training.episodes.state()}
    if hasattr(training, "replay"):
        groups["replay"] = training.replay.state(copy=False)
    return groups, {"rng": training.rng.bit_generator.state}


def restore_common(training: Any, saved: Saved, actions: int | None = None) -> None:
    """Restore the same, and the counts; the actions in a replay buffer must be below `actions`, if given."""
    training.agent.learner.load(saved.group("learner"))
    if hasattr(training, "replay"):
        training.replay.restore(saved.group("replay"), actions)
    training.episodes.restore(saved.group("episodes"))
    training.rng.bit_generator.state = saved.random_state()
    training.counts = saved.counts


def read_saved(path: Path, only: Collection[str] | None = None, *, of_run_best: bool = False) -> Saved:
    """Read a checkpoint, or the last one of a run directory, or its best; only some groups of arrays, or all."""
    found = checkpoint.read(checkpoint.find(path, best=of_run_best), only)
    meta = found.meta
    try:
        best = meta.get("best")
        require_state(best is None or type(best) in (int, float), "the best score is not a number")
        alone = meta.get(ALONE, False)
        require_state(isinstance(alone, bool), f"{ALONE} is neither true nor false")
        counts = Counts.of(object_in(meta, "counts"))
        _check_counts(counts, found, alone is True)
        return Saved(
            path=found.path,
            pipeline=text_in(meta, "pipeline"),
            config=object_in(meta, "config"),
            counts=counts,
            best=best if isinstance(best, int | float) else None,
            agent_only=alone is True,
            meta=meta,
            groups=found.groups,
        )
    except StateUnreadable as error:
        raise checkpoint.CheckpointUnreadable(f"{found.path}: {error}") from error


def _check_counts(counts: Counts, found: checkpoint.Checkpoint, alone: bool) -> None:
    """Reject counts that contradict each other, the name of the checkpoint, or those of its arrays that were read."""
    require_state(counts.frames >= counts.env_steps, f"{counts.frames} frames in {counts.env_steps} steps")
    require_state(counts.episodes <= counts.env_steps, f"{counts.episodes} episodes in {counts.env_steps} steps")
    named = None if alone else checkpoint.step_of(resolved(found.path))
    require_state(named in (None, counts.env_steps), f"{counts.env_steps} steps in a checkpoint of step {named}")
    for name, group, array in (("updates", "learner", "updates"), ("episodes", "episodes", "ended")):
        held, counted = found.groups.get(group, {}).get(array), getattr(counts, name)
        # The code that loads the array rejects a wrong shape or type.
        if held is not None and held.shape == () and held.dtype.kind == "i":
            require_state(int(held) == counted, f"{counted} {name}, of which its {group} has seen {int(held)}")
