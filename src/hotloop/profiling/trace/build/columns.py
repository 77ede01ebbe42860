"""Tables of a run as columns of integers: which rows, and their sums."""

from __future__ import annotations

from collections.abc import Mapping, Set
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Table = Mapping[str, Ints]


def of_windows(table: Table, windows: Set[int]) -> Table:
    """Return the rows of some windows."""
    chosen = np.isin(table["window"], list(windows))
    return {name: column[chosen] for name, column in table.items()}


def of_thread(table: Table, index: int) -> Table:
    """Return the rows of one thread."""
    chosen = table["thread"] == index
    return {name: column[chosen] for name, column in table.items()}


def grouped(table: Table, key: str) -> dict[int, Table]:
    """Return the rows of each value of a column: of each window, or of each thread."""
    order = np.argsort(table[key], kind="stable")
    values, first = np.unique(table[key][order], return_index=True)
    cuts = [*first.tolist(), len(order)]
    rows = (order[begin:end] for begin, end in pairwise(cuts))
    return {v: {name: c[r] for name, c in table.items()} for v, r in zip(values.tolist(), rows, strict=True)}


def none_of(table: Table) -> Table:
    """Return a table with the same columns and no rows."""
    return {name: column[:0] for name, column in table.items()}


def sum_by(keys: Ints, values: Ints) -> dict[int, int]:
    """Return the sum of the values of each key."""
    if not len(keys):
        return {}
    unique, inverse = np.unique(keys, return_inverse=True)
    sums = np.zeros(len(unique), np.int64)
    np.add.at(sums, inverse, values)
    return dict(zip(unique.tolist(), sums.tolist(), strict=True))
