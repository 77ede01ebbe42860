"""What a replay leaves in a checkpoint: plain arrays, of which only the part that was ever written."""

from __future__ import annotations

import numpy as np

from hotloop.replay.ring import ReplayError, Ring, Writer
from hotloop.replay.samplers import Sampler


def take_state(ring: Ring, writer: Writer, sampler: Sampler, copy: bool) -> dict[str, np.ndarray]:
    """Return the state of a replay: its lanes up to the fullest, its heads, and what sampler and writer know."""
    # Of this moment, also without copy: others may go on writing, in front of these heads and in the guard band.
    heads = ring.heads.copy()
    filled = min(ring.shape.length, int(heads.max()))
    found = {"heads": heads, "fresh": writer.fresh}
    found |= {name: array[:, :filled] for name, array in ring.by_lane().items()}
    found |= {f"sampler.{name}": array for name, array in sampler.state().items()}
    return {name: array.copy() if copy else array for name, array in found.items()}


def restore_state(ring: Ring, writer: Writer, sampler: Sampler, state: dict[str, np.ndarray]) -> None:
    """Take up a state; refuse one of another shape before anything is changed."""
    lanes = ring.by_lane()
    _check("heads", ring.heads, state)
    _check("fresh", writer.fresh, state)
    filled = min(ring.shape.length, int(state["heads"].max()))
    for name, array in lanes.items():
        _check(name, array[:, :filled], state)
    sampler.restore({name.removeprefix("sampler."): array for name, array in state.items() if "sampler." in name})
    for name, array in lanes.items():
        array[:, :filled] = state[name]
    writer.fresh[:] = state["fresh"]
    ring.heads[:] = state["heads"]


def _check(name: str, array: np.ndarray, state: dict[str, np.ndarray]) -> None:
    found = state.get(name)
    if found is None:
        raise ReplayError(f"the state has no {name!r}, only {', '.join(state)}: it is not one of a replay like this")
    if found.shape != array.shape or found.dtype != array.dtype:
        raise ReplayError(
            f"{name!r} of the state is {found.dtype} {list(found.shape)} where this replay has {array.dtype} "
            f"{list(array.shape)}: make the replay with the capacity and shapes it was saved with"
        )
