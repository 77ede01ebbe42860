"""Checks of saved state: arrays and JSON values out of a checkpoint, before they reach code that trusts them.

A kernel uses numbers of the state to address memory, so a wrong one would crash the process. Each check returns the
value, or raises an error of one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hotloop.errors import HotloopError

MOST = 1 << 53
"""No count of a training is larger."""
REMEDY = "use another checkpoint"


class StateUnreadable(HotloopError):
    """Saved state is damaged, or belongs to something of another shape."""


def array_of(
    state: Mapping[str, np.ndarray],
    name: str,
    like: np.ndarray,
    low: float | None = None,
    high: float | None = None,
    remedy: str = REMEDY,
) -> np.ndarray:
    """Return an array of a saved state.

    Args:
        state: Arrays by name.
        name: Of the array.
        like: Has the shape and type that it must have.
        low: Its smallest allowed value; numbers must be finite in any case.
        high: Its largest.
        remedy: What the error says to do about another shape or type.
    """
    found = state.get(name)
    if not isinstance(found, np.ndarray) or found.shape != like.shape or found.dtype != like.dtype:
        seen = f"{found.dtype} {found.shape}" if isinstance(found, np.ndarray) else "nothing"
        raise StateUnreadable(f"the saved state has {seen} for {name!r}, not {like.dtype} {like.shape}: {remedy}")
    require_values(found, name, low, high)
    return found


def take_like(group: dict[str, np.ndarray], **own: np.ndarray) -> list[np.ndarray]:
    """Take arrays out of a group, each of which must have the shape and type of this training's own."""
    found = [array_of(group, name, array) for name, array in own.items()]
    for name in own:
        del group[name]
    return found


def require_values(values: np.ndarray, name: str, low: float | None = None, high: float | None = None) -> None:
    """Refuse numbers that are not finite, or not from `low` to `high`."""
    if not values.size or values.dtype == np.bool_:
        return
    # Of numbers that are not all finite, the smallest or the largest is not finite.
    least, most = values.min(), values.max()
    for value in (least, most):
        if not np.isfinite(value):
            raise StateUnreadable(f"the saved state has {value} in {name!r}, where numbers are finite: {REMEDY}")
    if (low is not None and least < low) or (high is not None and most > high):
        worst = least if low is not None and least < low else most
        raise StateUnreadable(f"the saved state has {worst} in {name!r}, expected {low} to {high}: {REMEDY}")


def require_state(holds: bool, what: str) -> None:
    """Refuse a state whose parts contradict each other."""
    if not holds:
        raise StateUnreadable(f"the saved state is impossible: {what}; {REMEDY}")


def count_in(values: Mapping[str, Any], name: str, low: int = 0, high: int = MOST) -> int:
    """Return a whole number of a JSON object."""
    value = values.get(name)
    if type(value) is not int or not low <= value <= high:
        raise StateUnreadable(
            f"the checkpoint has {_short(value)} for {name!r}, expected {low} to {high}: use another checkpoint"
        )
    return value


def object_in(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an object of a JSON object."""
    return _typed(values, name, dict, "an object")


def text_in(values: Mapping[str, Any], name: str) -> str:
    """Return a string of a JSON object."""
    return _typed(values, name, str, "a string")


def numbers_in(values: Mapping[str, Any], name: str, length: int, low: float, high: float = MOST) -> list[Any]:
    """Return a list of so many numbers of a JSON object."""
    found = _typed(values, name, list, f"a list of {length} numbers")
    if len(found) != length or not all(type(each) in (int, float) and low <= each <= high for each in found):
        raise StateUnreadable(
            f"the checkpoint has {_short(found)} for {name!r}, expected {length} numbers from {low} to {high}: {REMEDY}"
        )
    return found


def random_state(state: Any) -> dict[str, Any]:
    """Return the state of a PCG64 generator, for `bit_generator.state`, that JSON or an array held."""
    try:
        inner = state["state"]
        bits = {128: [inner["state"], inner["inc"]], 1: [state["has_uint32"]], 32: [state["uinteger"]]}
        known = state["bit_generator"] == "PCG64" and all(
            type(word) is int and 0 <= word < 1 << width for width, words in bits.items() for word in words
        )
        # The increment of a PCG is odd, or its period would be shorter.
        known = known and inner["inc"] % 2 == 1
    except (KeyError, TypeError):
        known = False
    if not known:
        raise StateUnreadable(f"the checkpoint has {_short(state)} as the state of a random generator: {REMEDY}")
    return state


def _typed(values: Mapping[str, Any], name: str, kind: type, expected: str) -> Any:
    value = values.get(name)
    if type(value) is not kind:
        raise StateUnreadable(f"the checkpoint has {_short(value)} for {name!r}, expected {expected}: {REMEDY}")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
