"""Arrays that nobody else holds, without asking the system for new memory each time.

An observation of many boards is megabytes. Memory that comes from the system is handed over page by page, zeroed, at
the first write: for planes that is a quarter of a step. So arrays are kept here, and one is handed out again once all
that was made of it is gone; whoever keeps an array or a view of it keeps it for good.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_alone = [np.empty(1)]
FREE = sys.getrefcount(_alone[0])
"""What is counted for an array that only a list holds; views of an array count as well, as they hold it."""


class Shelf:
    """Arrays of one shape.

    Args:
        shape: Of each array.
        dtype: Of each array.
        most: How many are kept; one more than a caller holds at a time is enough.
    """

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike, most: int = 4) -> None:
        self._shape, self._dtype, self._most = shape, dtype, most
        self._arrays: list[NDArray[Any]] = []

    def take(self) -> NDArray[Any]:
        """Return an array that nobody holds, with anything in it."""
        for k in range(len(self._arrays)):
            if sys.getrefcount(self._arrays[k]) == FREE:
                return self._arrays[k]
        if len(self._arrays) == self._most:
            # Somebody keeps them all: the oldest is the least likely to come back.
            del self._arrays[0]
        self._arrays.append(np.empty(self._shape, self._dtype))
        return self._arrays[-1]
