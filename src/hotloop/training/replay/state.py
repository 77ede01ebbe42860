"""Saving and restoring a replay: plain arrays, cut down to the slots that were written."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hotloop.training.replay.record_layout import FLAG_BITS
from hotloop.training.replay.ring_layout import ReplayError, Ring
from hotloop.training.replay.samplers import Sampler
from hotloop.training.replay.writers import StepWriter
from hotloop.training.state_checks import MOST, require_values


def take_state(ring: Ring, lanes: StepWriter, sampler: Sampler, copy: bool) -> dict[str, np.ndarray]:
    """Return the state of a replay: heads, the slots written in any lane, and the state of sampler and writer."""
    # Copied in any case: other processes may keep writing beyond these heads.
    heads = ring.heads.copy()
    filled = min(ring.shape.length, int(heads.max()))
    found = {"heads": heads, "fresh": lanes.fresh}
    found |= {name: array[:, :filled] for name, array in ring.by_lane().items()}
    found |= {f"sampler.{name}": array for name, array in sampler.state().items()}
    return {name: array.copy() if copy else array for name, array in found.items()}


def restore_state(
    ring: Ring, lanes: StepWriter, sampler: Sampler, state: Mapping[str, np.ndarray], actions: int | None
) -> None:
    """Restore a state. An invalid one, or one of another shape, is rejected before anything is changed.

    Args:
        ring: Ring to restore.
        lanes: All its lanes.
        sampler: Sampler of the ring.
        state: What `take_state` returned.
        actions: Number of discrete actions; None for other actions.
    """
    arrays = ring.by_lane()
    _check("heads", ring.heads, state)
    _check("fresh", lanes.fresh, state)
    heads = state["heads"]
    # Step ids, number × lanes, must fit into 64 bits.
    require_values(heads, "heads", low=0, high=MOST // ring.shape.lanes)
    filled = min(ring.shape.length, int(heads.max()))
    for name, array in arrays.items():
        _check(name, array[:, :filled], state)
    _check_records(ring.layout.record, state["words"], actions)
    found = {name.removeprefix("sampler."): array for name, array in state.items() if "sampler." in name}
    sampler.restore(found, heads)
    for name, array in arrays.items():
        array[:, :filled] = state[name]
    lanes.fresh[:] = state["fresh"]
    ring.heads[:] = state["heads"]


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
