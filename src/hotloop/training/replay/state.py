"""What a replay leaves in a checkpoint: plain arrays, of which only the part that was ever written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hotloop.training.replay.kernels import FINAL, START, TERMINATED, TRUNCATED
from hotloop.training.replay.ring import ReplayError, Ring, Writer
from hotloop.training.replay.samplers import Sampler
from hotloop.training.state_checks import MOST, require_values

FLAG_BITS = TERMINATED | TRUNCATED | START | FINAL


def take_state(ring: Ring, writer: Writer, sampler: Sampler, copy: bool) -> dict[str, np.ndarray]:
    """Return the state of a replay: its lanes up to the fullest, its heads, and what sampler and writer know."""
    # Of this moment, also without copy: others may go on writing, in front of these heads and in the guard band.
    heads = ring.heads.copy()
    filled = min(ring.shape.length, int(heads.max()))
    found = {"heads": heads, "fresh": writer.fresh}
    found |= {name: array[:, :filled] for name, array in ring.by_lane().items()}
    found |= {f"sampler.{name}": array for name, array in sampler.state().items()}
    return {name: array.copy() if copy else array for name, array in found.items()}


def restore_state(
    ring: Ring, writer: Writer, sampler: Sampler, state: Mapping[str, np.ndarray], actions: int | None
) -> None:
    """Take up a state; refuse an impossible one, or one of another shape, before anything is changed.

    Args:
        ring: To restore.
        writer: Of all its lanes.
        sampler: Of the ring.
        state: What `take_state` returned.
        actions: Discrete actions are below this; None where actions are not numbered.
    """
    lanes = ring.by_lane()
    _check("heads", ring.heads, state)
    _check("fresh", writer.fresh, state)
    heads = state["heads"]
    # A step's id, its number times the lanes, must fit into 64 bits.
    require_values(heads, "heads", low=0, high=MOST // ring.shape.stripes)
    filled = min(ring.shape.length, int(heads.max()))
    for name, array in lanes.items():
        _check(name, array[:, :filled], state)
    _check_records(ring.lanes.record, state["words"], actions)
    found = {name.removeprefix("sampler."): array for name, array in state.items() if "sampler." in name}
    sampler.restore(found, heads)
    for name, array in lanes.items():
        array[:, :filled] = state[name]
    writer.fresh[:] = state["fresh"]
    ring.heads[:] = state["heads"]


def _check_records(record: np.dtype[Any], words: np.ndarray, actions: int | None) -> None:
    """Refuse records with unknown flags, actions that no learner has, or numbers that are not finite."""
    # The last axis is a whole record, so it can be looked at by columns.
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
