"""Reference implementation of `raster` in plain Python, pixel by pixel, for tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hotloop.training.envs.ricochet.raster import CENTRE, LINE, PAPER, ROBOTS, STARS, WALL, Canvas
from hotloop.training.envs.ricochet.reference import Board, Cell, is_centre


def draw(board: Board, sheet: Canvas) -> NDArray[np.uint8]:
    """Return a picture of a board, uint8 [P, P, 3]."""
    size, side, edges, thick = sheet.size, sheet.side, sheet.edges, sheet.thick
    cell_of = np.searchsorted(edges, np.arange(side), side="right") - 1
    picture = np.empty((side, side, 3), np.int64)
    for y in range(side):
        for x in range(side):
            cell = int(cell_of[x]), int(cell_of[y])
            on_line = (x in edges and x > 0) or (y in edges and y > 0)
            picture[y, x] = CENTRE if is_centre(size, cell) else LINE if on_line else PAPER
    for (x, y), direction in board.walls:
        left, right, top, bottom = edges[x], edges[x + 1], edges[y], edges[y + 1]
        # The side of the cell as a line, thickened all around.
        lines = (
            (left, top, right, top),
            (right, top, right, bottom),
            (left, bottom, right, bottom),
            (left, top, left, bottom),
        )
        x_0, y_0, x_1, y_1 = lines[direction]
        picture[max(y_0 - thick, 0) : y_1 + thick, max(x_0 - thick, 0) : x_1 + thick] = WALL
    _stamp(picture, sheet, sheet.star, board.goal, STARS[board.target])
    for robot, cell in enumerate(board.robots):
        _stamp(picture, sheet, sheet.disc, cell, ROBOTS[robot])
    return picture.astype(np.uint8)


def _stamp(
    picture: NDArray[np.int64], sheet: Canvas, cover: NDArray[np.int64], cell: Cell, colour: NDArray[np.int64]
) -> None:
    (left, right), (top, bottom) = (sheet.edges[[place, place + 1]] for place in cell)
    least = sheet.side // sheet.size
    share = cover[bottom - top - least, right - left - least, : bottom - top, : right - left, None]
    patch = picture[top:bottom, left:right]
    patch[...] = (patch * (255 - share) + colour * share + 127) // 255
