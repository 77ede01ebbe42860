"""Kernels that draw boards directly at the final size.

Grid, walls and goal do not change in an episode and are drawn once into a layer. A picture is a copy of that layer with
the robots on top. A disc or star looks the same in all cells of one size, so its coverage of each pixel is computed
once and looked up. `raster_reference` is the same in plain Python.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from hotloop.training.envs.numba_tools import borrow, kernel
from hotloop.training.envs.ricochet.config import LEFT, UP
from hotloop.training.envs.ricochet.memory_layout import GOAL, TARGET

PAPER, LINE, WALL, CENTRE = (250, 249, 245), (222, 220, 212), (38, 42, 51), (150, 152, 158)
ROBOTS = np.array([[214, 52, 52], [38, 104, 214], [34, 150, 76], [238, 172, 24]], np.int64)
STARS = ROBOTS * 3 // 4
"""The goal has a darker shade of its robot's colour."""

DISC_RADIUS, STAR_RADIUS, STAR_WAIST = 0.38, 0.46, 0.42
"""In cells; the waist is a share of the star's radius."""

SAMPLES = 8
"""Sample points along the side of a pixel, for computing its coverage."""


class Canvas(NamedTuple):
    """How a board of one size is laid out on a picture of P×P pixels."""

    size: int
    side: int
    """P"""
    thick: int
    """Half the thickness of a wall, in pixels."""
    edges: np.ndarray
    """int64 [size + 1]: boundaries of the cells. Cells are P // size pixels wide, or one more."""
    disc: np.ndarray
    """int64 [2, 2, w, w]: coverage of each pixel, 0 to 255. First indices: is the cell a pixel taller, wider?"""
    star: np.ndarray
    """int64 [2, 2, w, w]"""
    blank: np.ndarray
    """uint8 [P·P·3]: the parts common to all boards: paper, lines between cells and the centre block."""


@functools.cache
def canvas(size: int, side: int) -> Canvas:
    """Return the layout of a board of one size."""
    width = side // size
    edges = np.array([side * k // size for k in range(size + 1)])
    disc = np.zeros((2, 2, width + 1, width + 1), np.int64)
    star = np.zeros_like(disc)
    for tall in range(2):
        for wide in range(2):
            x, y = _points(width + wide, width + tall)
            away, angle = np.hypot(x, y), np.arctan2(x, -y)
            inside = (slice(width + tall), slice(width + wide))
            disc[tall, wide][inside] = _covered(away <= DISC_RADIUS * width)
            star[tall, wide][inside] = _covered(away <= STAR_RADIUS * width * _star_edge(angle))
    blank = np.empty((side, side, 3), np.uint8)
    blank[...] = PAPER
    blank[edges[1:-1]] = LINE
    blank[:, edges[1:-1]] = LINE
    low, high = edges[(size - 1) // 2], edges[size // 2 + 1]
    blank[low:high, low:high] = CENTRE
    return Canvas(size, side, max(1, width // 10), edges, disc, star, blank.reshape(-1))


def _points(width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y of the sample points relative to the cell's centre, each [height, width, SAMPLES²]."""
    within = (np.arange(SAMPLES) + 0.5) / SAMPLES
    x, y = np.arange(width)[:, None] + within - width / 2, np.arange(height)[:, None] + within - height / 2
    shape = (height, width, SAMPLES, SAMPLES)
    spread = np.broadcast_to(x[None, :, None, :], shape), np.broadcast_to(y[:, None, :, None], shape)
    return spread[0].reshape(height, width, -1), spread[1].reshape(height, width, -1)


def _covered(inside: np.ndarray) -> np.ndarray:
    return np.rint(255 * inside.mean(axis=2)).astype(np.int64)


def _star_edge(angle: np.ndarray) -> np.ndarray:
    """Return the radius of a five-pointed star of radius 1 at an angle; 0 is up."""
    tenth = np.pi / 5
    turn = np.abs((angle + tenth) % (2 * tenth) - tenth)
    # The straight line from a point, (0, 1), to the waist beside it.
    waist_x, waist_y = STAR_WAIST * np.sin(tenth), STAR_WAIST * np.cos(tenth)
    return waist_x / (waist_x * np.cos(turn) + (1 - waist_y) * np.sin(turn))


@kernel
def fill(picture: np.ndarray, i: int, side: int, box: tuple[int, int, int, int], colour: tuple[int, int, int]) -> None:
    """Fill a box (left, top, right, bottom), clipped to the picture."""
    left, top, right, bottom = max(box[0], 0), max(box[1], 0), min(box[2], side), min(box[3], side)
    for y in range(top, bottom):
        for x in range(left, right):
            at = 3 * (side * y + x)
            picture[i, at], picture[i, at + 1], picture[i, at + 2] = colour


@kernel
def stamp(sheet: Canvas, cover: np.ndarray, colour: np.ndarray, cell: int, picture: np.ndarray, i: int) -> None:
    """Draw a disc or a star into a cell."""
    size, edges, side = sheet.size, borrow(sheet.edges), sheet.side
    left, top = edges[cell & 15], edges[cell >> 4]
    width, height = edges[(cell & 15) + 1] - left, edges[(cell >> 4) + 1] - top
    tall, wide = height - side // size, width - side // size
    for y in range(height):
        for x in range(width):
            share = cover[tall, wide, y, x]
            if share == 255:
                at = 3 * (side * (top + y) + left + x)
                for k in range(3):
                    picture[i, at + k] = colour[k]
            elif share:
                at = 3 * (side * (top + y) + left + x)
                for k in range(3):
                    mixed = np.int64(picture[i, at + k]) * (255 - share) + colour[k] * share
                    picture[i, at + k] = (mixed + 127) // 255


@kernel
def draw_grid(sheet: Canvas, layers: np.ndarray, games: np.ndarray) -> None:
    """Initialise the layers [N, P·P·3] of some games with the parts common to all boards."""
    blank, pictures = borrow(sheet.blank), borrow(layers)
    for i in games:
        for at in range(len(blank)):
            pictures[i, at] = blank[at]


@kernel
def draw_walls(sheet: Canvas, walls: np.ndarray, layers: np.ndarray, games: np.ndarray) -> None:
    """Draw the walls of some games, slightly longer than a cell so that the corners of an L are closed."""
    size, edges, side, thick, pictures = sheet.size, sheet.edges, sheet.side, sheet.thick, borrow(layers)
    boards = borrow(walls)
    for i in games:
        fill(pictures, i, side, (side - thick, 0, side, side), WALL)
        fill(pictures, i, side, (0, side - thick, side, side), WALL)
        # Walls are stored for both adjacent cells, so drawing the upper and left ones is enough.
        for y in range(size):
            for x in range(size):
                here = boards[i, 16 * y + x]
                left, top, right, bottom = (
                    edges[x] - thick,
                    edges[y] - thick,
                    edges[x + 1] + thick,
                    edges[y + 1] + thick,
                )
                if (here >> UP) & 1:
                    fill(pictures, i, side, (left, top, right, top + 2 * thick), WALL)
                if (here >> LEFT) & 1:
                    fill(pictures, i, side, (left, top, left + 2 * thick, bottom), WALL)


@kernel
def draw_target(sheet: Canvas, vitals: np.ndarray, layers: np.ndarray, games: np.ndarray) -> None:
    """Draw the goal of some games as a star, in the colour of its robot."""
    pictures, facts, star = borrow(layers), borrow(vitals), borrow(sheet.star)
    for i in games:
        stamp(sheet, star, STARS[facts[i, TARGET]], facts[i, GOAL], pictures, i)


@kernel
def draw_robots(
    sheet: Canvas, layers: np.ndarray, robots: np.ndarray, count: int, games: np.ndarray, out: np.ndarray
) -> None:
    """Draw pictures of some games into `out` [len(games), P·P·3]: copy each game's layer and add robots as discs."""
    boards, pictures, places, disc = borrow(layers), borrow(out), borrow(robots), borrow(sheet.disc)
    for k in range(len(games)):
        i = games[k]
        for at in range(boards.shape[1]):
            pictures[k, at] = boards[i, at]
        for r in range(count):
            stamp(sheet, disc, ROBOTS[r], int(places[i, r]), pictures, k)
