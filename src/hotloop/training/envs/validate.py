"""Checks of options, actions and seeds given to an environment. Each error says what is wrong and what to give."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hotloop.errors import HotloopError
from hotloop.training.envs.gym_types import Flags

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")


def build_config(game: str, kind: type[Config], options: Mapping[str, Any], what: str = "option") -> Config:
    """Make a configuration dataclass of a game from keywords; an unknown `what` is an error that lists known ones."""
    known = [each.name for each in fields(kind)]
    for name in options:
        if name not in known:
            raise HotloopError(f"{game} has no {what} {name!r}: there are {', '.join(known)}")
    return kind(**options)


def check_choice(what: str, value: object, known: Collection[str | int]) -> None:
    """Reject a value that is not one of the known ones."""
    if isinstance(value, bool) or value not in known:
        raise HotloopError(f"{what} is {value!r}: give one of {', '.join(map(str, known))}")


def check_render_mode(mode: str | None, known: Collection[str]) -> None:
    """Reject an unknown render mode; None is allowed."""
    if mode is not None and mode not in known:
        choice = "one of " if len(known) > 1 else ""
        raise HotloopError(f"render_mode is {mode!r}: give {choice}{', '.join(known)}, or None")


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is an int; a bool does not count as one."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_whole(what: str, value: object, least: int, most: int | None = None) -> None:
    """Reject anything but an int of at least `least` and, if given, at most `most`."""
    if not is_whole(value) or value < least or (most is not None and value > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise HotloopError(f"{what} is {value!r}: give a whole number {limits}")


def at_least_one(what: str, value: object) -> int:
    """Return a Python or numpy integer of at least 1 as an int; reject anything else."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise HotloopError(f"{what} is {value!r}: give a whole number of at least 1")
    return int(value)


def check_reset_mask(mask: ArrayLike | None, count: int, was_reset: bool, each: str) -> Flags:
    """Return which environments to reset, bool [N]; without a mask, all of them. Messages call one `each`."""
    if mask is None:
        return np.ones(count, np.bool_)
    mask = np.asarray(mask)
    if mask.shape != (count,) or mask.dtype != np.bool_:
        raise HotloopError(f"reset_mask is {mask.dtype} {mask.shape}: give bool ({count},)")
    if not was_reset:
        raise HotloopError(f"a reset_mask came with the first reset: reset all {each}s once")
    return mask


def seeds_per_env(seed: int | Sequence[int], count: int, each: str) -> Sequence[int]:
    """Return one seed per environment: seed + i, or the i-th of a sequence."""
    if isinstance(seed, int | np.integer):
        return range(int(seed), int(seed) + count)
    if len(seed) != count:
        raise HotloopError(f"there are {len(seed)} seeds: give {count}, one for each {each}")
    return seed


def check_actions(actions: ArrayLike, over: Flags | None, was_reset: bool, each: str, count: int) -> NDArray[np.int64]:
    """Return the actions passed to `step` as int64 [N].

    `over` is where an episode has ended and was not reset, bool [N]; None if environments reset automatically. Messages
    call one environment `each`.
    """
    actions = np.ascontiguousarray(actions)
    if actions.shape != (count,) or actions.dtype.kind not in "iu":
        raise HotloopError(
            f"actions are {actions.dtype} {actions.shape}: give {count} whole numbers, one for each {each}"
        )
    if not was_reset:
        raise HotloopError("step was called before reset: call reset first")
    if over is not None and over.any():
        raise HotloopError(f"the episode of {each} {int(over.argmax())} is over: reset it before the next step")
    return actions.astype(np.int64, copy=False)


def action_error(actions: NDArray[np.int64], most: int, each: str) -> HotloopError:
    """Return the error that names the first action outside of 0 to `most`."""
    which = int(np.flatnonzero((actions < 0) | (actions > most))[0])
    return HotloopError(f"action of {each} {which} is {actions[which]}: give a whole number from 0 to {most}")
