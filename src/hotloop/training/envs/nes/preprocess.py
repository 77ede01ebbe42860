"""From the console's picture to what the agent sees: grey, the larger of two frames, and shrunk, in one pass.

A pixel of the result is the mean of the area that it covers, weighted by how much of each pixel lies in it. All sums
are of whole numbers, so the kernel and its twin agree to the bit. NES games draw more sprites than a line can show by
showing them every other frame; the larger of two frames has them all.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hotloop.errors import HotloopError

Array = NDArray[Any]

SCALE = 1 << 16
SHIFT = 42
TAPS = 4
"""Pixels of a row that lie in one of the result, at most: the kernel adds up just so many."""

RED, GREEN, BLUE = (round(SCALE * weight * 255 / top) for weight, top in ((0.299, 31), (0.587, 63), (0.114, 31)))
"""Grey of a pixel of 5, 6 and 5 bits, times 65,536; the weights of red, green and blue as OpenCV has them."""


@lru_cache(maxsize=16)
def overlaps(size: int, pixels: int) -> tuple[Array, Array]:
    """Say which pixels lie in each pixel of the result, along one side.

    Returns:
        The first of them, int64 [size], and how much of it and of each that follows lies within, uint32 [size, K], in
        units of which the side has `size` × `pixels`: each row sums to `pixels`.
    """
    first = np.arange(size, dtype=np.int64) * pixels // size
    last = ((np.arange(size, dtype=np.int64) + 1) * pixels - 1) // size
    weights = np.zeros((size, max(int((last - first).max()) + 1, TAPS)), np.uint32)
    for i in range(size):
        for k, pixel in enumerate(range(first[i], last[i] + 1)):
            weights[i, k] = min((pixel + 1) * size, (i + 1) * pixels) - max(pixel * size, i * pixels)
    return first, weights


class Shrinker:
    """Makes grey pictures of a fixed size of frames of a fixed size.

    Args:
        shape: Height and width of a frame.
        size: Pixels a side of the result.
    """

    def __init__(self, shape: tuple[int, int], size: int) -> None:
        self._rows, self._columns = overlaps(size, shape[0]), overlaps(size, shape[1])
        if self._columns[1].shape[1] != TAPS or not shape[0] * shape[1] < SCALE:
            raise HotloopError(f"frames of {shape} cannot be shrunk to {size}: give a size from {shape[1] // 3} on")
        self._size = size
        self._line = np.empty(shape[1], np.uint32)
        # Longer than a row, so that a weight of 0 beyond its end needs no question.
        self._sums = np.zeros(shape[1] + self._columns[1].shape[1], np.uint32)

    def __call__(self, frame: Array, earlier: Array) -> Array:
        """Return the picture, uint8 [size, size], of two frames, uint16 [H, W] of RGB565; they may be the same."""
        out = np.empty((self._size, self._size), np.uint8)
        _shrink(frame, earlier, self._rows, self._columns, (self._line, self._sums), out)
        return out


@njit(cache=True, boundscheck=False, inline="always")
def _grey(pixel):  # pyright: ignore  # the types are numba's
    # All in 32 bits, eight pixels at a time: with Python's numbers the sums would be in 64.
    p = np.uint32(pixel)
    red, green, blue = p >> np.uint32(11), (p >> np.uint32(5)) & np.uint32(63), p & np.uint32(31)
    return np.uint32(red * np.uint32(RED) + green * np.uint32(GREEN) + blue * np.uint32(BLUE))


@njit(cache=True, boundscheck=False)
def _shrink(frame, earlier, rows, columns, scratch, out):  # pyright: ignore  # the types are numba's
    first_row, row_weights = rows
    first_column, column_weights = columns
    line, sums = scratch
    height, width = frame.shape
    # Dividing by the area is multiplying and shifting, a tenth of the work, and exact: sums are below 2**24 and the
    # area below 2**16, so what the rounded inverse is too large by adds up to less than one.
    area = np.uint64(height * width)
    inverse = (np.uint64(1) << np.uint64(SHIFT)) // area + np.uint64(1)
    half = np.uint32(area >> np.uint64(1))
    made = -1
    for i in range(out.shape[0]):
        for x in range(width):
            sums[x] = 0
        for k in range(row_weights.shape[1]):
            weight = row_weights[i, k]
            row = first_row[i] + k
            if weight == 0:
                continue
            # A row that lies in two rows of the result is made grey once.
            if row != made:
                made = row
                now, before = frame[row], earlier[row]
                for x in range(width):
                    larger = max(_grey(now[x]), _grey(before[x]))
                    line[x] = (larger + np.uint32(SCALE // 2)) >> np.uint32(16)
            for x in range(width):
                sums[x] += np.uint32(line[x] * weight)
        for j in range(out.shape[1]):
            total = half
            at = np.uint64(first_column[j])  # unsigned, so that it is not asked whether it counts from the end
            total += np.uint32(sums[at] * column_weights[j, 0])
            total += np.uint32(sums[at + np.uint64(1)] * column_weights[j, 1])
            total += np.uint32(sums[at + np.uint64(2)] * column_weights[j, 2])
            total += np.uint32(sums[at + np.uint64(3)] * column_weights[j, 3])
            out[i, j] = (np.uint64(total) * inverse) >> np.uint64(SHIFT)


def shrink_twin(frame: Array, earlier: Array, size: int) -> Array:
    """The same in plain numpy, to be read and to test the kernel against."""
    greys = []
    for each in (frame, earlier):
        pixels = each.astype(np.int64)
        greys.append((pixels >> 11) * RED + ((pixels >> 5) & 63) * GREEN + (pixels & 31) * BLUE)
    grey = (np.maximum(*greys) + SCALE // 2) >> 16
    height, width = frame.shape
    total = _matrix(size, height) @ grey @ _matrix(size, width).T
    return ((total + height * width // 2) // (height * width)).astype(np.uint8)


def _matrix(size: int, pixels: int) -> Array:
    """The overlaps as a matrix, int64 [size, pixels]."""
    edges = np.arange(pixels + 1) * size
    matrix = np.zeros((size, pixels), np.int64)
    for i in range(size):
        inside = np.clip(edges, i * pixels, (i + 1) * pixels)
        matrix[i] = np.diff(inside)
    return matrix
