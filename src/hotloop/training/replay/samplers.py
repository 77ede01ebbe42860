"""Choosing the transitions of a batch: uniformly, or by priority."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hotloop.training.replay.batch import Batch
from hotloop.training.replay.kernels import count_steps, draw
from hotloop.training.replay.ring_layout import ReplayError, Ring

if TYPE_CHECKING:
    from hotloop.training.replay.prioritised import PrioritisedSampler

MAX_TRIES = 16
"""Attempts to gather a batch that no writer overwrites in the meantime."""


@dataclass(frozen=True, slots=True)
class Prioritised:
    """Options of sampling in proportion to priority^alpha, with importance weights^beta (Schaul et al. 2016)."""

    alpha: float = 0.6
    beta: float = 0.4
    epsilon: float = 1e-6
    """Added to every priority, so that none is zero."""

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            if not 0 <= getattr(self, name) <= 1:
                raise ReplayError(f"{name} is {getattr(self, name)}: give a number from 0 to 1")
        if self.epsilon <= 0:
            raise ReplayError(f"epsilon is {self.epsilon}: give a small number above 0")


Sampler: TypeAlias = "UniformSampler | PrioritisedSampler"
"""Chooses the steps of a batch."""


def make_sampler(ring: Ring, prioritised: Prioritised | None) -> Sampler:
    """Return a prioritised sampler, or a uniform one if `prioritised` is None."""
    if prioritised is None:
        return UniformSampler(ring)
    from hotloop.training.replay.prioritised import PrioritisedSampler

    return PrioritisedSampler(ring, prioritised)


def draw_intact(
    ring: Ring, batch: int, rng: np.random.Generator, gather: Callable[[int], Batch[np.ndarray]]
) -> Batch[np.ndarray]:
    """Gather a batch with a seed from `rng`; repeat if another process overwrote any of it in the meantime."""
    if batch < 1:
        raise ReplayError(f"cannot sample {batch} transitions: sample one or more")
    for _ in range(MAX_TRIES):
        found = gather(int(rng.bit_generator.random_raw()) >> 1)
        if not ring.overtaken(found.index):
            return found
    raise ReplayError(
        f"writers overtook {MAX_TRIES} batches while they were gathered: raise the capacity or the guard "
        f"(now {ring.shape.guard} steps an environment)"
    )


def too_few(batch: int, held: int) -> ReplayError:
    """Return the error for a batch larger than the number of complete steps."""
    return ReplayError(
        f"cannot sample {batch} transitions from a replay that holds {held} complete ones: "
        "add more steps before sampling"
    )


def count_held(ring: Ring) -> int:
    """Return how many steps of a ring can be sampled now."""
    return count_steps(ring.heads, ring.shape, np.empty(ring.shape.lanes, np.int64))


class UniformSampler:
    """Draws every complete transition with equal probability, with replacement."""

    nbytes = 0

    def __init__(self, ring: Ring) -> None:
        self._ring = ring

    def __len__(self) -> int:
        return count_held(self._ring)

    def draw(self, batch: int, seed: int, beta: float | None) -> tuple[np.ndarray, np.ndarray]:
        """Draw steps: ids int64 [B] and weights float32 [B], all 1."""
        ids, ring = np.empty(batch, np.int64), self._ring
        # A copy, because writers keep advancing the heads.
        held, drawn = draw(ring.heads.copy(), ring.words, ring.shape, seed, ids)
        if held < batch:
            raise too_few(batch, held)
        if drawn < batch:
            raise ReplayError(f"only {drawn} of {batch} transitions could be drawn: add more steps before sampling")
        return ids, np.ones(batch, np.float32)

    def update(self, ids: np.ndarray, td_abs: np.ndarray) -> None:
        """Do nothing: there are no priorities."""

    def state(self) -> dict[str, np.ndarray]:
        """Return nothing: all state is in the ring."""
        return {}

    def restore(self, state: Mapping[str, np.ndarray], heads: np.ndarray) -> None:
        """Do nothing."""
