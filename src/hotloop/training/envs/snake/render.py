"""Draws a game as text for the terminal or as pixels for videos.

The coverage of a pixel is computed from its distance to a line or dot, which gives smooth edges at any size without a
drawing library.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hotloop.training.envs.snake.config import NOWHERE, START_LENGTH

Colour = tuple[int, int, int] | NDArray[np.floating]
Point = tuple[float, float]
"""x and y in cells; the centre of the first cell is (0.5, 0.5)."""

LONGEST_SIDE, LARGEST_CELL, SMALLEST_CELL = 400, 40, 8
GROUND = np.array([[24, 28, 37], [28, 33, 43]], np.float32)
HEAD_COLOUR, TAIL_COLOUR = np.array([126, 231, 135], np.float32), np.array([31, 111, 139], np.float32)
FOOD_COLOUR, SHINE_COLOUR, LEAF_COLOUR = (255, 92, 87), (255, 176, 165), (140, 200, 90)
WHITE, BLACK = (245, 248, 250), (16, 20, 28)
AHEAD: tuple[Point, ...] = ((0, -1), (1, 0), (0, 1), (-1, 0))


class Picture(NamedTuple):
    """One game, as needed for drawing."""

    board: int
    body: tuple[int, ...]
    """Cells, 64·y + x, head first."""
    heading: int
    food: int
    """Cell, or NOWHERE."""
    steps: int


def write(picture: Picture) -> str:
    """Return the board as text, with a line for score and step. `^ > v <` is the head, `o` the body, `*` the food."""
    lines = [["."] * picture.board for _ in range(picture.board)]
    signs = ["^>v<"[picture.heading], *"o" * (len(picture.body) - 1)]
    for cell, sign in zip(picture.body, signs, strict=True):
        lines[cell >> 6][cell & 63] = sign
    if picture.food != NOWHERE:
        lines[picture.food >> 6][picture.food & 63] = "*"
    below = f"score {len(picture.body) - START_LENGTH}  step {picture.steps}"
    return "\n".join([*(" ".join(line) for line in lines), below])


def draw(picture: Picture) -> NDArray[np.uint8]:
    """Draw the board; return uint8 [g·c, g·c, 3]. A cell is c = 40 pixels wide, less on boards larger than 10."""
    size = max(SMALLEST_CELL, min(LARGEST_CELL, LONGEST_SIDE // picture.board))
    canvas = Canvas(picture.board, size)
    if picture.food != NOWHERE:
        _draw_food(canvas, _middle(picture.food))
    middles = [_middle(cell) for cell in picture.body]
    # From the tail to the head, so that the head is on top.
    for k in range(len(middles) - 1, 0, -1):
        age = k / len(middles)
        canvas.line(middles[k], middles[k - 1], 0.40 - 0.16 * age, HEAD_COLOUR + (TAIL_COLOUR - HEAD_COLOUR) * age)
    _draw_head(canvas, middles[0], AHEAD[picture.heading])
    return canvas.pixels.round().astype(np.uint8)


class Canvas:
    """An empty board to draw on, with coordinates in cells."""

    def __init__(self, board: int, size: int) -> None:
        self.size = size
        cells = np.arange(board * size) // size
        self.pixels: NDArray[np.float32] = GROUND[(cells[:, None] + cells[None, :]) % 2]

    def dot(self, at: Point, radius: float, colour: Colour) -> None:
        """Draw a filled circle."""
        self.line(at, at, radius, colour)

    def line(self, start: Point, end: Point, radius: float, colour: Colour) -> None:
        """Draw a line with round ends."""
        edge, size = radius + 1 / self.size, self.size
        first_x, last_x = self._span(start[0], end[0], edge)
        first_y, last_y = self._span(start[1], end[1], edge)
        x = (np.arange(first_x, last_x, dtype=np.float32) + 0.5) / size - start[0]
        y = ((np.arange(first_y, last_y, dtype=np.float32) + 0.5) / size - start[1])[:, None]
        dx, dy = end[0] - start[0], end[1] - start[1]
        along = np.clip((x * dx + y * dy) / max(dx * dx + dy * dy, 1e-9), 0, 1)
        away = np.hypot(x - along * dx, y - along * dy)
        covered = np.clip((radius - away) * size + 0.5, 0, 1)[:, :, None]
        patch = self.pixels[first_y:last_y, first_x:last_x]
        patch += covered * (np.asarray(colour, np.float32) - patch)

    def _span(self, a: float, b: float, edge: float) -> tuple[int, int]:
        first = max(0, int((min(a, b) - edge) * self.size))
        return first, min(len(self.pixels), int((max(a, b) + edge) * self.size) + 1)


def _middle(cell: int) -> Point:
    return (cell & 63) + 0.5, (cell >> 6) + 0.5


def _draw_food(canvas: Canvas, at: Point) -> None:
    x, y = at
    canvas.dot((x, y + 0.04), 0.31, FOOD_COLOUR)
    canvas.dot((x - 0.10, y - 0.07), 0.08, SHINE_COLOUR)
    canvas.line((x + 0.02, y - 0.26), (x + 0.14, y - 0.36), 0.055, LEAF_COLOUR)


def _draw_head(canvas: Canvas, at: Point, ahead: Point) -> None:
    (x, y), (dx, dy) = at, ahead
    canvas.dot(at, 0.44, HEAD_COLOUR)
    for side in (-1, 1):
        eye_x, eye_y = x + 0.12 * dx - 0.20 * side * dy, y + 0.12 * dy + 0.20 * side * dx
        canvas.dot((eye_x, eye_y), 0.125, WHITE)
        canvas.dot((eye_x + 0.05 * dx, eye_y + 0.05 * dy), 0.065, BLACK)
