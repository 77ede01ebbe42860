"""Draws the score into the corner of the picture, like the official one: 42-point digits, scaled with the window.

Glyphs and their spacing come from pygame's font and are read once per process. Each number is composed when it is first
needed and cached, so drawing a frame copies about 80 bytes.
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
from numpy.typing import NDArray

from hotloop.training.envs.carracing.memory_layout import WINDOW_H, WINDOW_W

GLYPHS = "-0123456789"
POINTS = 42
MIDDLE_X, MIDDLE_Y = 60, WINDOW_H - WINDOW_H * 2.5 / 40
LOSS = 2
"""Same as `game.SHRINKING_LOSS`, which cannot be imported without Box2D."""


@functools.cache
def glyphs() -> tuple[dict[str, NDArray[np.float64]], dict[str, int]]:
    """Return each glyph's picture, float64 [H, W] from 0 to 255, and the horizontal advance for each pair of glyphs."""
    import pygame

    pygame.font.init()
    font = pygame.font.Font(pygame.font.get_default_font(), POINTS)

    def show(text: str) -> NDArray[np.float64]:
        surface = font.render(text, True, (255, 255, 255), (0, 0, 0))
        return pygame.surfarray.array3d(surface)[:, :, 0].T.astype(np.float64)

    pictures = {glyph: show(glyph) for glyph in GLYPHS}
    steps = {a + b: font.size(a + b)[0] - font.size(b)[0] for a in GLYPHS for b in GLYPHS}
    return pictures, steps


def write(text: str) -> NDArray[np.float64]:
    """Return a picture of digits and signs, float64 [H, W] from 0 to 255, in pixels of the window."""
    pictures, steps = glyphs()
    begins = [0]
    for a, b in itertools.pairwise(text):
        begins.append(begins[-1] + steps[a + b])
    width = max(begin + pictures[glyph].shape[1] for begin, glyph in zip(begins, text, strict=True))
    page = np.zeros((max(pictures[glyph].shape[0] for glyph in text), width))
    for begin, glyph in zip(begins, text, strict=True):
        own = pictures[glyph]
        part = page[: own.shape[0], begin : begin + own.shape[1]]
        np.maximum(part, own, out=part)
    return page


def shrink(length: int, first: float, pixel: float) -> tuple[int, NDArray[np.float64]]:
    """Scale `length` window pixels from `first` on, at `pixel` window pixels per picture pixel.

    Return the first picture pixel that they cover and the weights, float64 [P, length].
    """
    begin, end = math.floor(first / pixel), math.ceil((first + length) / pixel)
    pixels, window = np.arange(begin, end)[:, None] * pixel, first + np.arange(length)[None, :]
    shared = np.minimum(pixels + pixel, window + 1) - np.maximum(pixels, window)
    return begin, np.maximum(shared, 0) / pixel


@functools.lru_cache(maxsize=4096)
def stamp(score: int, size: int) -> tuple[int, int, NDArray[np.uint8]]:
    """Return row and column of the score and its pixels, uint8 [H, W], for a picture of `size` × `size`."""
    text = write(f"{score:04d}")
    height, width = text.shape
    row, down = shrink(height, MIDDLE_Y - height // 2, WINDOW_H / size)
    column, across = shrink(width, max(MIDDLE_X - width // 2, 0), WINDOW_W / size)
    pixels = np.maximum(down @ text @ across.T - LOSS + 0.5, 0).astype(np.uint8)
    # A very bad score can have more digits than fit.
    return row, column, np.ascontiguousarray(pixels[:, : size - column])
