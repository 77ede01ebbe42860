"""What is handed to a vector environment, checked: one line says what is wrong, the value seen, and what to give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from hotloop.errors import HotloopError

Array = NDArray[Any]


def at_least_one(what: str, value: object) -> int:
    """Refuse what is not a whole number of at least 1."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise HotloopError(f"{what} is {value!r}: give a whole number of at least 1")
    return int(value)


def autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """Return Gymnasium's mode of that name."""
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = ", ".join(each.value for each in AutoresetMode)
        raise HotloopError(f"autoreset_mode is {mode!r}: give one of {known}") from None


def reset_mask(mask: Any, count: int, begun: bool, each: str) -> Array:
    """Return which environments to reset, bool [N]: all without a mask.

    Args:
        mask: As given, or None.
        count: N.
        begun: Was there a reset before?
        each: What one of them is called.
    """
    if mask is None:
        return np.ones(count, np.bool_)
    mask = np.asarray(mask)
    if mask.shape != (count,) or mask.dtype != np.bool_:
        raise HotloopError(f"reset_mask is {mask.dtype} {mask.shape}: give bool ({count},)")
    if not begun:
        raise HotloopError(f"a reset_mask came with the first reset: reset all {each}s once")
    return mask


def seeds_of(seed: int | Sequence[int], count: int, each: str) -> Sequence[int]:
    """Return a seed for each environment: seed + i, or the i-th of a sequence."""
    if isinstance(seed, int | np.integer):
        return range(int(seed), int(seed) + count)
    if len(seed) != count:
        raise HotloopError(f"there are {len(seed)} seeds: give {count}, one for each {each}")
    return seed


def whole_actions(actions: Array, over: Array | None, begun: bool, each: str, count: int) -> Array:
    """Return actions as int64 [N].

    Args:
        actions: As given.
        over: Where an episode is over that nobody resets, bool [N]; None where they are reset by themselves.
        begun: Was there a reset before?
        each: What one environment is called.
        count: N.
    """
    actions = np.ascontiguousarray(actions)
    if actions.shape != (count,) or actions.dtype.kind not in "iu":
        raise HotloopError(
            f"actions are {actions.dtype} {actions.shape}: give {count} whole numbers, one for each {each}"
        )
    if not begun:
        raise HotloopError("step was called before reset: call reset first")
    if over is not None and over.any():
        raise HotloopError(f"the episode of {each} {int(over.argmax())} is over: reset it before the next step")
    return actions.astype(np.int64, copy=False)


def wrong_action(actions: Array, most: int, each: str) -> HotloopError:
    """Return the error that names the first action which is not from 0 to `most`."""
    which = int(np.flatnonzero((actions < 0) | (actions > most))[0])
    return HotloopError(f"action of {each} {which} is {actions[which]}: give a whole number from 0 to {most}")
