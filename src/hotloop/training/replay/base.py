"""What `VectorReplay` and `FrameReplay` share: everything except adding and gathering transitions.

A base class, because both are public and a shared part object would need a forwarding method for each of these.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hotloop.training.replay.ring_layout import Handle, Ring
from hotloop.training.replay.samplers import Prioritised, make_sampler
from hotloop.training.replay.state import restore_state, take_state
from hotloop.training.replay.writers import StepWriter


class Replay:
    """A ring, its lanes as this process writes them, and a sampler."""

    def __init__(self, ring: Ring, writer: StepWriter, prioritised: Prioritised | None) -> None:
        self._ring = ring
        self._lanes = writer
        self._sampler = make_sampler(ring, prioritised)

    def __len__(self) -> int:
        """Return how many slots can be sampled now."""
        return len(self._sampler)

    @property
    def capacity(self) -> int:
        """Number of slots: transitions, and in a `FrameReplay` also the last frames of episodes."""
        return self._ring.shape.lanes * self._ring.shape.length

    @property
    def nbytes(self) -> int:
        """Memory used when full, including priorities."""
        return self._ring.block.nbytes + self._sampler.nbytes

    @property
    def ring(self) -> Ring:
        """The underlying memory, into which collectors write directly."""
        return self._ring

    @property
    def fresh(self) -> np.ndarray:
        """Whether the next step of each environment starts an episode, bool [N]. Writable."""
        return self._lanes.fresh

    def update_priorities(self, index: np.ndarray, td_abs: np.ndarray) -> None:
        """Set the priorities of sampled transitions. Those overwritten in the meantime are ignored.

        Args:
            index: `Batch.index`, [B].
            td_abs: Absolute TD errors, [B].
        """
        self._sampler.update(index, td_abs)

    def cut(self) -> None:
        """Start new episodes with the next step although the last ones did not end, as after a restart."""
        self._lanes.cut()

    def handle(self, first: int = 0, count: int | None = None) -> Handle:
        """Return the handle with which another process writes `count` environments starting at `first`."""
        return self._ring.handle(first, self._ring.shape.lanes - first if count is None else count)

    def state(self, copy: bool = True) -> dict[str, np.ndarray]:
        """Return the full contents for `restore`. Without `copy` the arrays change with the next add."""
        return take_state(self._ring, self._lanes, self._sampler, copy)

    def restore(self, state: Mapping[str, np.ndarray], actions: int | None = None) -> None:
        """Restore the state of a replay with the same options; it then continues bit for bit.

        Args:
            state: What `state` returned.
            actions: Number of discrete actions; stored actions are checked to be below it.

        Raises:
            HotloopError: The state is invalid or of another shape. The replay is unchanged.
        """
        restore_state(self._ring, self._lanes, self._sampler, state, actions)

    def close(self) -> None:
        """Release shared memory. This also happens when the replay is garbage collected, or at exit."""
        self._ring.block.close()
