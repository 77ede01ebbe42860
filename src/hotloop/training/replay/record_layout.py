"""The layout of a record, the fixed-size row that a ring keeps for each slot.

Kernels see a record as a row of 32-bit words, whatever the observations are, so one compilation serves every shape and
dtype. Word 0 holds the flags, word 1 the reward, then comes the action, then the columns of the particular replay.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

FLAGS, REWARD, ACTION = 0, 1, 2
"""Index of the first word of the columns that every record has; `record_dtype` puts them there."""
TERMINATED, TRUNCATED, START, FINAL = 1, 2, 4, 8
"""Bits of the flags.

START marks the first step of an episode. FINAL marks a slot that is not a transition: it only holds the last frame of
an episode, and its other words are 0.
"""
ENDED = TERMINATED | TRUNCATED
FLAG_BITS = TERMINATED | TRUNCATED | START | FINAL
WORD_BYTES = 4


def record_dtype(**columns: tuple[DTypeLike, tuple[int, ...]]) -> np.dtype[np.void]:
    """Return the structured dtype of a record: flags, reward, then `columns` of (dtype, shape), padded to words."""
    all_columns = {"flags": (np.uint32, ()), "reward": (np.float32, ()), **columns}
    names, formats, offsets, end = [], [], [], 0
    for name, (dtype, shape) in all_columns.items():
        column = np.dtype((dtype, shape))
        names.append(name)
        formats.append(column)
        offsets.append(end)
        end += words_of(column) * WORD_BYTES
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": end})


def words_of(column: np.dtype[np.generic]) -> int:
    """Return the number of words that a column takes."""
    return -(-column.itemsize // WORD_BYTES)


def as_column(words: np.ndarray, column: np.dtype[np.generic]) -> np.ndarray:
    """View words [B, W] as a column [B, *shape]. Copies only if the column ends in the middle of a word."""
    rows = words.view(np.uint8)[:, : column.itemsize] if column.itemsize % WORD_BYTES else words
    return np.ascontiguousarray(rows).view(column.base).reshape(len(words), *column.shape)
