"""Building blocks for the kernels of all environments: compilation, bit operations, directions, random numbers.

Numba recompiles a cached kernel only when the kernel's own file changes: after a change here, touch the files that use
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Array = TypeVar("Array", bound=np.ndarray)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"""Constants of SplitMix64."""


def kernel(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a function. For a type checker it keeps its own signature."""
    return njit(cache=True, nogil=True, error_model="numpy")(function)


if TYPE_CHECKING:
    # How kernels call them: numba itself passes `typing`.
    def count_ones(value: np.uint64) -> int: ...  # noqa: D103
    def lowest_one(value: np.uint64) -> int: ...  # noqa: D103
    def borrow(array: Array) -> Array: ...  # noqa: D103

else:

    @intrinsic
    def count_ones(typing, value):
        """Return the number of set bits of a uint64, as int64."""
        return types.int64(types.uint64), lambda context, builder, signature, args: builder.ctpop(args[0])

    @intrinsic
    def lowest_one(typing, value):
        """Return the position of the lowest set bit of a uint64 that is not 0, as int64."""

        def generate(context, builder, signature, args):
            return builder.cttz(args[0], context.get_constant(types.boolean, True))

        return types.int64(types.uint64), generate

    @intrinsic
    def borrow(typing, array):
        """Return the same array without a reference count.

        Otherwise every function called with the array updates the count atomically. Use it only inside a kernel, and
        only while the original array is alive.
        """

        def generate(context, builder, signature, args):
            copy = context.make_array(signature.args[0])(context, builder, value=args[0])
            copy.meminfo = cgutils.get_null_value(copy.meminfo.type)
            return copy._getvalue()

        return array(array), generate


@kernel
def step_x(direction: int) -> int:
    """Return the change of x for a step up (0), right (1), down (2) or left (3)."""
    return (direction & 1) * (2 - direction)


@kernel
def step_y(direction: int) -> int:
    """Return the change of y, which points down, for a step up (0), right (1), down (2) or left (3)."""
    return (1 - (direction & 1)) * (direction - 1)


@kernel
def copy_row(source: np.ndarray, target: np.ndarray, i: int) -> None:
    """Copy row i. Assigning slices would first check for overlaps, which costs more than the copy."""
    for k in range(source.shape[1]):
        target[i, k] = source[i, k]


@kernel
def draw(vitals: np.ndarray, i: int, column: int, choices: int) -> int:
    """Draw an integer in [0, choices) from the random stream (SplitMix64) of game i, whose state is in `column`."""
    z = np.uint64(vitals[i, column]) + GOLDEN
    vitals[i, column] = np.int64(z)
    z = (z ^ (z >> np.uint64(30))) * MIX_1
    z = (z ^ (z >> np.uint64(27))) * MIX_2
    z ^= z >> np.uint64(31)
    # Scaling the upper 32 bits makes the choices equally likely to within one in a million.
    return int(np.int64(((z >> np.uint64(32)) * np.uint64(choices)) >> np.uint64(32)))


def random_states(seeds: Sequence[int]) -> NDArray[np.int64]:
    """Return the initial random state for each seed, int64 [N]. Seeds are hashed so that close ones are unrelated."""
    z = np.array([seed & 0xFFFF_FFFF_FFFF_FFFF for seed in seeds], np.uint64) + GOLDEN
    z = (z ^ (z >> np.uint64(30))) * MIX_1
    z = (z ^ (z >> np.uint64(27))) * MIX_2
    return (z ^ (z >> np.uint64(31))).view(np.int64)
