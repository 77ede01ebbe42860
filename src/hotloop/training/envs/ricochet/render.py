"""Draws boards for people: as text for the terminal, or as pixels in a larger size than the agent's observation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hotloop.training.envs.ricochet import raster
from hotloop.training.envs.ricochet.puzzle import Puzzles

CELL = 32
"""Side of a cell in pixels."""


def draw(puzzles: Puzzles, which: int = 0, cell: int = CELL) -> NDArray[np.uint8]:
    """Draw a board; return uint8 [size · cell, size · cell, 3]."""
    side = puzzles.size * cell
    sheet, state, games = raster.canvas(puzzles.size, side), puzzles.state(), np.array([which])
    layers = np.empty((len(puzzles), side * side * 3), np.uint8)
    raster.draw_grid(sheet, layers, games)
    raster.draw_walls(sheet, state.walls, layers, games)
    raster.draw_target(sheet, state.vitals, layers, games)
    picture = np.empty((1, side * side * 3), np.uint8)
    raster.draw_robots(sheet, layers, state.robots, puzzles.count, games, picture)
    return picture.reshape(side, side, 3)


def write(puzzles: Puzzles, which: int = 0) -> str:
    """Return a board as text: `A` to `D` are the robots, the lower-case letter is the goal of that robot."""
    size, walls = puzzles.size, puzzles.walls[which].reshape(16, 16)
    signs: dict[int, str] = {}
    for robot, cell in enumerate(puzzles.robots[which]):
        signs[int(cell)] = "ABCD"[robot]
    goal = int(puzzles.goal[which])
    signs[goal] = signs.get(goal, "") + "abcd"[int(puzzles.target[which])]
    lines: list[str] = []
    for y in range(size):
        lines.append("+" + "+".join("--" if walls[y, x] & 1 else "  " for x in range(size)) + "+")
        line = "|"
        for x in range(size):
            line += signs.get(16 * y + x, ".").ljust(2) + ("|" if walls[y, x] >> 1 & 1 else " ")
        lines.append(line)
    return "\n".join([*lines, "+" + "--+" * size])
