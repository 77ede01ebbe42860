"""Turns the console's picture into an observation: grey, maximum of two frames, and scaled down, in one pass.

A result pixel is the mean of the area that it covers, with partially covered pixels weighted. All sums are of integers,
so the kernel and the reference agree exactly. NES games that need more sprites than a line can show draw them every
other frame; the maximum of two frames contains them all.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numba import njit
from numpy.typing import NDArray

from hotloop.errors import HotloopError

Pixels = NDArray[np.uint16]
"""A frame in RGB565, [H, W]."""
Picture = NDArray[np.uint8]
Overlaps = tuple[NDArray[np.int64], NDArray[np.uint32]]
SCALE = 1 << 16
SHIFT = 42
TAPS = 4
"""Number of source pixels in a row that the kernel adds up for a result pixel, which is the largest possible."""

RED, GREEN, BLUE = (round(SCALE * weight * 255 / top) for weight, top in ((0.299, 31), (0.587, 63), (0.114, 31)))
"""Grey of an RGB565 pixel is the weighted sum of its channels ÷ 65,536; the weights are those of OpenCV."""


@lru_cache(maxsize=16)
def overlaps(size: int, pixels: int) -> Overlaps:
    """Return which source pixels each result pixel covers, along one side.

    Returns:
        The first covered pixel, int64 [size], and the weights of it and the following ones, uint32 [size, K]. Weights
        are overlaps in units of 1 / (`size` · `pixels`) of the side, so each row sums to `pixels`.
    """
    first = np.arange(size, dtype=np.int64) * pixels // size
    last = ((np.arange(size, dtype=np.int64) + 1) * pixels - 1) // size
    weights = np.zeros((size, max(int((last - first).max()) + 1, TAPS)), np.uint32)
    for i in range(size):
        for k, pixel in enumerate(range(first[i], last[i] + 1)):
            weights[i, k] = min((pixel + 1) * size, (i + 1) * pixels) - max(pixel * size, i * pixels)
    return first, weights


class Shrinker:
    """Scales frames of one shape, height and width, down to square grey pictures of `size` pixels a side."""

    def __init__(self, shape: tuple[int, int], size: int) -> None:
        self._rows, self._columns = overlaps(size, shape[0]), overlaps(size, shape[1])
        if self._columns[1].shape[1] != TAPS or not shape[0] * shape[1] < SCALE:
            raise HotloopError(f"frames of {shape} cannot be shrunk to {size}: give a size from {shape[1] // 3} on")
        self._size = size
        self._line = np.empty(shape[1], np.uint32)
        # Longer than a row, so that reading beyond its end with weight 0 needs no bounds check.
        self._sums = np.zeros(shape[1] + self._columns[1].shape[1], np.uint32)

    def __call__(self, frame: Pixels, earlier: Pixels) -> Picture:
        """Return the picture, uint8 [size, size], of two frames, uint16 [H, W] in RGB565, which may be the same."""
        out = np.empty((self._size, self._size), np.uint8)
        _shrink(frame, earlier, self._rows, self._columns, (self._line, self._sums), out)
        return out


@njit(cache=True, boundscheck=False, inline="always")
def _grey(pixel: np.uint16) -> np.uint32:
    # With explicit 32-bit types the compiler processes eight pixels at a time; Python ints would make the sums 64-bit.
    p = np.uint32(pixel)
    red, green, blue = p >> np.uint32(11), (p >> np.uint32(5)) & np.uint32(63), p & np.uint32(31)
    return np.uint32(red * np.uint32(RED) + green * np.uint32(GREEN) + blue * np.uint32(BLUE))


@njit(cache=True, boundscheck=False)
def _shrink(
    frame: Pixels,
    earlier: Pixels,
    rows: Overlaps,
    columns: Overlaps,
    scratch: tuple[NDArray[np.uint32], NDArray[np.uint32]],
    out: Picture,
) -> None:
    first_row, row_weights = rows
    first_column, column_weights = columns
    line, sums = scratch
    height, width = frame.shape
    # Division by the area is done by multiplying and shifting, which takes a tenth of the time. It is exact: sums are
    # below 2**24 and the area below 2**16, so the error of the rounded inverse adds up to less than one.
    area = np.uint64(height * width)
    inverse = (np.uint64(1) << np.uint64(SHIFT)) // area + np.uint64(1)
    half = np.uint32(area >> np.uint64(1))
    grey_row = -1
    for i in range(out.shape[0]):
        for x in range(width):
            sums[x] = 0
        for k in range(row_weights.shape[1]):
            weight = row_weights[i, k]
            row = first_row[i] + k
            if weight == 0:
                continue
            # A source row that is part of two result rows is converted to grey once.
            if row != grey_row:
                grey_row = row
                now, before = frame[row], earlier[row]
                for x in range(width):
                    larger = max(_grey(now[x]), _grey(before[x]))
                    line[x] = (larger + np.uint32(SCALE // 2)) >> np.uint32(16)
            for x in range(width):
                sums[x] += np.uint32(line[x] * weight)
        for j in range(out.shape[1]):
            total = half
            at = np.uint64(first_column[j])  # Unsigned, so numba does not check for a negative index.
            total += np.uint32(sums[at] * column_weights[j, 0])
            total += np.uint32(sums[at + np.uint64(1)] * column_weights[j, 1])
            total += np.uint32(sums[at + np.uint64(2)] * column_weights[j, 2])
            total += np.uint32(sums[at + np.uint64(3)] * column_weights[j, 3])
            out[i, j] = (np.uint64(total) * inverse) >> np.uint64(SHIFT)


def shrink_reference(frame: Pixels, earlier: Pixels, size: int) -> Picture:
    """Reference implementation in plain numpy, for tests."""
    greys = []
    for each in (frame, earlier):
        pixels = each.astype(np.int64)
        greys.append((pixels >> 11) * RED + ((pixels >> 5) & 63) * GREEN + (pixels & 31) * BLUE)
    grey = (np.maximum(*greys) + SCALE // 2) >> 16
    height, width = frame.shape
    total = _matrix(size, height) @ grey @ _matrix(size, width).T
    return ((total + height * width // 2) // (height * width)).astype(np.uint8)


def _matrix(size: int, pixels: int) -> NDArray[np.int64]:
    edges = np.arange(pixels + 1) * size
    matrix = np.zeros((size, pixels), np.int64)
    for i in range(size):
        inside = np.clip(edges, i * pixels, (i + 1) * pixels)
        matrix[i] = np.diff(inside)
    return matrix
