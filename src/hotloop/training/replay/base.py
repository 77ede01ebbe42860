"""What `VectorReplay` and `FrameReplay` share: everything except adding and gathering transitions.

A base class, because both are public and a shared part object would need a forwarding method for each of these.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hotloop.training.replay.record_layout import FLAG_BITS
from hotloop.training.replay.ring_layout import Handle, ReplayError, Ring
from hotloop.training.replay.samplers import Prioritised, make_sampler
from hotloop.training.replay.writers import StepWriter
from hotloop.training.state_checks import MOST, require_values


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
        """Set the priorities of sampled transitions (`Batch.index`, [B]) from their absolute TD errors, [B].

        Those overwritten in the meantime are ignored.
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
        # Copied in any case: other processes may keep writing beyond these heads.
        heads = self._ring.heads.copy()
        found = {"heads": heads, "fresh": self.fresh} | self._written(heads)
        found |= {f"sampler.{name}": array for name, array in self._sampler.state().items()}
        return {name: array.copy() if copy else array for name, array in found.items()}

    def _written(self, heads: np.ndarray) -> dict[str, np.ndarray]:
        """Return the slots that were written in any lane, [lanes, filled, ...], as views."""
        filled = min(self._ring.shape.length, int(heads.max()))
        return {name: array[:, :filled] for name, array in self._ring.by_lane().items()}

    def restore(self, state: Mapping[str, np.ndarray], actions: int | None = None) -> None:
        """Restore the `state` of a replay with the same options; it then continues bit for bit.

        An invalid state is rejected before anything is changed; discrete actions must be below `actions`.
        """
        ring = self._ring
        _check("heads", ring.heads, state)
        _check("fresh", self.fresh, state)
        heads = state["heads"]
        # Step ids, number × lanes, must fit into 64 bits.
        require_values(heads, "heads", low=0, high=MOST // ring.shape.lanes)
        arrays = self._written(heads)
        for name, array in arrays.items():
            _check(name, array, state)
        _check_records(ring.layout.record, state["words"], actions)
        found = {name.removeprefix("sampler."): array for name, array in state.items() if "sampler." in name}
        self._sampler.restore(found, heads)
        for name, array in arrays.items():
            array[:] = state[name]
        self.fresh[:] = state["fresh"]
        ring.heads[:] = heads

    def close(self) -> None:
        """Release shared memory. This also happens when the replay is garbage collected, or at exit."""
        self._ring.block.close()


def _check_records(record: np.dtype[np.void], words: np.ndarray, actions: int | None) -> None:
    """Reject records with unknown flags, actions out of range, or numbers that are not finite."""
    rows = np.ascontiguousarray(words).view(record)
    require_values(rows["flags"], "flags", high=FLAG_BITS)
    for name in record.names or ():
        if rows[name].dtype.kind == "f":
            require_values(rows[name], name)
    if actions is not None:
        require_values(rows["action"], "action", low=0, high=actions - 1)


def _check(name: str, array: np.ndarray, state: Mapping[str, np.ndarray]) -> None:
    found = state.get(name)
    if found is None:
        raise ReplayError(f"the state has no {name!r}, only {', '.join(state)}: it is not one of a replay like this")
    if found.shape != array.shape or found.dtype != array.dtype:
        raise ReplayError(
            f"{name!r} of the state is {found.dtype} {list(found.shape)} where this replay has {array.dtype} "
            f"{list(array.shape)}: make the replay with the capacity and shapes it was saved with"
        )
