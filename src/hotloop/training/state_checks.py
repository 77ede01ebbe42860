"""Validation of saved state: arrays and JSON values from a checkpoint.

Kernels use numbers of the state as indices without checking them, so a wrong one could crash the process. Each function
returns the valid value, or raises a one-line error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from hotloop.errors import HotloopError
from hotloop.json_types import Json

Kind = TypeVar("Kind")
MOST = 1 << 53
"""Upper bound of every count."""
REMEDY = "use another checkpoint"


class StateUnreadable(HotloopError):
    """Saved state is damaged, or has another shape."""


def array_of(
    state: Mapping[str, np.ndarray],
    name: str,
    like: np.ndarray,
    low: float | None = None,
    high: float | None = None,
    remedy: str = REMEDY,
) -> np.ndarray:
    """Return an array of a saved state, which must have the shape and dtype of `like`.

    Its numbers must be finite, and from `low` to `high`. `remedy` is the advice in an error about shape or dtype.
    """
    found = state.get(name)
    if not isinstance(found, np.ndarray) or found.shape != like.shape or found.dtype != like.dtype:
        actual = f"{found.dtype} {found.shape}" if isinstance(found, np.ndarray) else "nothing"
        raise StateUnreadable(f"the saved state has {actual} for {name!r}, not {like.dtype} {like.shape}: {remedy}")
    require_values(found, name, low, high)
    return found


def take_like(group: dict[str, np.ndarray], **own: np.ndarray) -> list[np.ndarray]:
    """Remove arrays from a group and return them; each must have the shape and dtype of the one given here."""
    found = [array_of(group, name, array) for name, array in own.items()]
    for name in own:
        del group[name]
    return found


def require_values(values: np.ndarray, name: str, low: float | None = None, high: float | None = None) -> None:
    """Reject numbers that are not finite, or not from `low` to `high`."""
    if not values.size or values.dtype == np.bool_:
        return
    # If any number is not finite, the minimum or the maximum is not.
    least, most = values.min(), values.max()
    for value in (least, most):
        if not np.isfinite(value):
            raise StateUnreadable(f"the saved state has {value} in {name!r}, where numbers are finite: {REMEDY}")
    if (low is not None and least < low) or (high is not None and most > high):
        worst = least if low is not None and least < low else most
        raise StateUnreadable(f"the saved state has {worst} in {name!r}, expected {low} to {high}: {REMEDY}")


def require_state(holds: bool, what: str) -> None:
    """Reject a state whose parts contradict each other."""
    if not holds:
        raise StateUnreadable(f"the saved state is impossible: {what}; {REMEDY}")


def count_in(values: Mapping[str, Json], name: str, low: int = 0, high: int = MOST) -> int:
    """Return an integer of a JSON object."""
    value = values.get(name)
    if type(value) is not int or not low <= value <= high:
        raise StateUnreadable(
            f"the checkpoint has {_short(value)} for {name!r}, expected {low} to {high}: use another checkpoint"
        )
    return value


def object_in(values: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    """Return an object of a JSON object."""
    return _typed(values, name, dict, "an object")


def text_in(values: Mapping[str, Json], name: str) -> str:
    """Return a string of a JSON object."""
    return _typed(values, name, str, "a string")


def numbers_in(values: Mapping[str, Json], name: str, length: int, low: float, high: float = MOST) -> list[float]:
    """Return a list of `length` numbers of a JSON object."""
    found = _typed(values, name, list, f"a list of {length} numbers")
    if len(found) != length or not all(type(each) in (int, float) and low <= each <= high for each in found):
        raise StateUnreadable(
            f"the checkpoint has {_short(found)} for {name!r}, expected {length} numbers from {low} to {high}: {REMEDY}"
        )
    return found


def random_state(state: Json) -> dict[str, Json]:
    """Return a saved state of a PCG64 generator, to be assigned to `bit_generator.state`."""
    inner = state.get("state") if isinstance(state, dict) else None
    if isinstance(state, dict) and isinstance(inner, dict):
        words = (
            (inner.get("state"), 128),
            (inner.get("inc"), 128),
            (state.get("has_uint32"), 1),
            (state.get("uinteger"), 32),
        )
        valid = all(type(word) is int and 0 <= word < 1 << bits for word, bits in words)
        # The increment of a PCG is always odd.
        increment = inner.get("inc")
        if valid and state.get("bit_generator") == "PCG64" and isinstance(increment, int) and increment % 2 == 1:
            return state
    raise StateUnreadable(f"the checkpoint has {_short(state)} as the state of a random generator: {REMEDY}")


def _typed(values: Mapping[str, Json], name: str, kind: type[Kind], expected: str) -> Kind:
    value = values.get(name)
    if not isinstance(value, kind):
        raise StateUnreadable(f"the checkpoint has {_short(value)} for {name!r}, expected {expected}: {REMEDY}")
    return value


def _short(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
