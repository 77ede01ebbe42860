"""What the kernels of several environments are made of: how they are compiled, bits, directions, random numbers.

Numba renews its cache of a kernel when the kernel's own file has changed: after a change here, touch those that use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"""Of SplitMix64."""

kernel = njit(cache=True, nogil=True, error_model="numpy")


def _count_ones(typing: Any, value: Any) -> Any:
    """How many bits of a uint64 are set, as int64."""
    return types.int64(types.uint64), lambda context, builder, signature, args: builder.ctpop(args[0])


def _lowest_one(typing: Any, value: Any) -> Any:
    """Which is the lowest bit set of a uint64 that is not 0, as int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], context.get_constant(types.boolean, True))

    return types.int64(types.uint64), generate


def _bare(typing: Any, array: Any) -> Any:
    """The same memory without its reference count, which every function would count up and down, atomically.

    Only for use inside of a kernel, and only as long as somebody else holds the array.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        copy = context.make_array(signature.args[0])(context, builder, value=args[0])
        copy.meminfo = cgutils.get_null_value(copy.meminfo.type)
        return copy._getvalue()

    return array(array), generate


# A type checker would ask for the `typing` that numba hands in.
count_ones: Any = intrinsic(_count_ones)
lowest_one: Any = intrinsic(_lowest_one)
bare: Any = intrinsic(_bare)


@kernel
def step_x(way: int) -> int:
    """How far right a step up, right, down or left leads."""
    return (way & 1) * (2 - way)


@kernel
def step_y(way: int) -> int:
    """How far down."""
    return (1 - (way & 1)) * (way - 1)


@kernel
def draw(vitals: np.ndarray, i: int, column: int, choices: int) -> int:
    """Draw a number from 0 up to `choices` from a game's own random numbers (SplitMix64), kept in a column."""
    z = np.uint64(vitals[i, column]) + GOLDEN
    vitals[i, column] = np.int64(z)
    z = (z ^ (z >> np.uint64(30))) * MIX_1
    z = (z ^ (z >> np.uint64(27))) * MIX_2
    z ^= z >> np.uint64(31)
    # The upper half of the bits is scaled: off by less than one in a million from equal chances.
    return int(np.int64(((z >> np.uint64(32)) * np.uint64(choices)) >> np.uint64(32)))


def random_states(seeds: Sequence[int]) -> NDArray[np.int64]:
    """Return the states from which the random numbers of these seeds begin, int64 [N].

    They are mixed, so that neighbouring seeds have nothing in common.
    """
    z = np.array([seed & 0xFFFF_FFFF_FFFF_FFFF for seed in seeds], np.uint64) + GOLDEN
    z = (z ^ (z >> np.uint64(30))) * MIX_1
    z = (z ^ (z >> np.uint64(27))) * MIX_2
    return (z ^ (z >> np.uint64(31))).view(np.int64)
