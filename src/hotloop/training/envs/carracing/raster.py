"""Kernels that fill polygons and rectangles and average samples to pixels. `reference` is the same in plain Python.

A polygon covers the samples whose centre is inside. Polygons that share an edge neither overlap nor leave a gap: both
follow the edge from its upper end.

Numba recompiles a cached kernel only when the kernel's own file changes: after a change here, touch `kernels.py`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hotloop.training.envs.carracing.memory_layout import Brush
from hotloop.training.envs.numba_tools import kernel

inlined = njit(cache=True, nogil=True, error_model="numpy", inline="always")
ZERO, BYTE = np.uint64(0), np.uint64(255)


@kernel
def fill(brush: Brush, count: int, colour: int, grow: float) -> None:
    """Fill the convex polygon of the first `count` corners of the brush, widened by `grow` samples to either side."""
    canvas, left, right, corners = brush
    height, width = canvas.shape
    top, bottom = corners[0, 1], corners[0, 1]
    for k in range(1, count):
        top, bottom = min(top, corners[k, 1]), max(bottom, corners[k, 1])
    first, last = max(math.ceil(top - 0.5), 0), min(math.ceil(bottom - 0.5), height)
    for row in range(first, last):
        left[row], right[row] = np.inf, -np.inf
    for k in range(count):
        follow(brush, k, k + 1 if k + 1 < count else 0)
    for row in range(first, last):
        begin = max(math.ceil(left[row] - grow - 0.5), 0)
        end = min(math.ceil(right[row] + grow - 0.5), width)
        if begin < end:
            # A slice assignment compiles to memset; a loop over columns does not.
            canvas[row, begin:end] = colour


@kernel
def follow(brush: Brush, i: int, j: int) -> None:
    """Follow an edge from its upper to its lower end and extend the rows in between to it."""
    canvas, left, right, corners = brush
    if corners[i, 1] > corners[j, 1]:
        i, j = j, i
    x, y, end_x, end_y = corners[i, 0], corners[i, 1], corners[j, 0], corners[j, 1]
    if y == end_y:
        return
    slope = (end_x - x) / (end_y - y)
    for row in range(max(math.ceil(y - 0.5), 0), min(math.ceil(end_y - 0.5), canvas.shape[0])):
        at = x + (row + 0.5 - y) * slope
        left[row], right[row] = min(left[row], at), max(right[row], at)


@kernel
def pack(palette: np.ndarray, packed: np.ndarray) -> None:
    """Pack the channels of each colour into one uint64, 16 bits each, so that one addition sums them all."""
    for colour in range(palette.shape[0]):
        packed[colour] = ZERO
        for channel in range(palette.shape[1]):
            packed[colour] |= np.uint64(palette[colour, channel]) << np.uint64(16 * channel)


@kernel
def colour_in(canvas: np.ndarray, fine: int, palette: np.ndarray, picture: np.ndarray) -> None:
    """Set each pixel to the mean colour of its `fine` × `fine` samples. `picture` is uint8 [S, S, C]."""
    packed = np.empty(palette.shape[0], np.uint64)
    pack(palette, packed)
    if fine == 1:
        colour_by(canvas, 1, 0, packed, picture)
    elif fine == 2:
        colour_by(canvas, 2, 2, packed, picture)
    else:
        colour_by(canvas, 4, 4, packed, picture)


@inlined
def colour_by(canvas: np.ndarray, fine: int, shift: int, packed: np.ndarray, picture: np.ndarray) -> None:
    """Do the same for `fine`² = 1 << `shift` samples. Inlined, so that the inner loops have constant lengths."""
    size, channels = picture.shape[0], picture.shape[2]
    half = np.uint64((1 << shift) // 2)
    half |= half << np.uint64(16) | half << np.uint64(32)
    for row in range(size):
        for column in range(size):
            total = half
            for y in range(fine):
                for x in range(fine):
                    total += packed[canvas[row * fine + y, column * fine + x]]
            total >>= np.uint64(shift)
            picture[row, column, 0] = np.uint8(total & BYTE)
            if channels == 3:
                picture[row, column, 1] = np.uint8((total >> np.uint64(16)) & BYTE)
                picture[row, column, 2] = np.uint8((total >> np.uint64(32)) & BYTE)


@kernel
def cover(picture: np.ndarray, box: tuple[float, float, float, float], paint: np.ndarray) -> None:
    """Paint the rectangle (left, top, right, bottom), in pixels; a pixel covered in part is blended.

    Blending keeps the length of an indicator exact at any resolution. The agent reads the speed from it.
    """
    size, channels = picture.shape[0], picture.shape[2]
    left, top, right, bottom = box
    for row in range(max(math.floor(top), 0), min(math.ceil(bottom), size)):
        tall = min(bottom, row + 1.0) - max(top, float(row))
        for column in range(max(math.floor(left), 0), min(math.ceil(right), size)):
            part = tall * (min(right, column + 1.0) - max(left, float(column)))
            for channel in range(channels):
                if part == 1.0:
                    picture[row, column, channel] = paint[channel]
                else:
                    under = picture[row, column, channel]
                    picture[row, column, channel] = np.uint8(under + part * (float(paint[channel]) - under) + 0.5)
