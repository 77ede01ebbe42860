"""Reuses large arrays instead of allocating new ones.

An observation of many boards takes megabytes. The system zeroes newly allocated pages at the first write, which costs a
quarter of a step when planes are observed. The pool keeps its arrays and hands one out again only when no caller holds
it or a view of it any more, so a caller may keep an array for as long as it likes.
"""

from __future__ import annotations

import sys
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)
_example = [np.empty(1)]
UNUSED = sys.getrefcount(_example[0])
"""Reference count of an array that only a list holds. A view holds its array, so views are counted too."""


class ArrayPool(Generic[Scalar]):
    """Arrays of one shape and type.

    It keeps `capacity` arrays: one more than a caller holds at a time is enough.
    """

    def __init__(self, shape: tuple[int, ...], dtype: type[Scalar], capacity: int = 4) -> None:
        self._shape, self._dtype, self._capacity = shape, dtype, capacity
        self._arrays: list[NDArray[Scalar]] = []

    def take(self) -> NDArray[Scalar]:
        """Return an array that no caller holds. Its contents are undefined."""
        for k in range(len(self._arrays)):
            if sys.getrefcount(self._arrays[k]) == UNUSED:
                return self._arrays[k]
        if len(self._arrays) == self._capacity:
            # All are in use. The one handed out first is the least likely to be released.
            del self._arrays[0]
        self._arrays.append(np.empty(self._shape, self._dtype))
        return self._arrays[-1]
