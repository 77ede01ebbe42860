"""Ricochet Robots as the study had it: one board at a time, cell by cell, pictures drawn large and then made smaller.

Written afresh from what the study says of itself, as the thing to compare with: a picture is drawn with PIL from
nothing in each step, grid, walls, robots and target, 20 pixels a cell, and brought to 128×128 by a Lanczos filter. The
boards are those of `hotloop.training.envs.ricochet`, so that both play the same.
"""

from __future__ import annotations

import math

import numpy as np
from PIL import Image, ImageDraw

from hotloop.training.envs.ricochet import Puzzles

WAYS = ((0, -1), (1, 0), (0, 1), (-1, 0))
COLOURS = ((214, 52, 52), (38, 104, 214), (34, 150, 76), (238, 172, 24))
CELL, SIDE = 20, 128


class StudyBoard:
    """One board."""

    def __init__(self, puzzles: Puzzles, which: int) -> None:
        self.size = puzzles.size
        self.walls = {
            ((x, y), way)
            for y in range(self.size)
            for x in range(self.size)
            for way in range(4)
            if puzzles.walls[which, 16 * y + x] >> way & 1
        }
        self.start = [(int(cell) % 16, int(cell) // 16) for cell in puzzles.robots[which]]
        self.goal = (int(puzzles.goal[which]) % 16, int(puzzles.goal[which]) // 16)
        self.target, self.steps = int(puzzles.target[which]), 0
        self.robots = list(self.start)

    def step(self, action: int, pictures: bool) -> tuple[np.ndarray, float, bool]:
        """Play one action; return what is seen, the reward and whether the episode is over, and begin it again."""
        robot, way = divmod(action, 4)
        x, y = self.robots[robot]
        dx, dy = WAYS[way]
        while ((x, y), way) not in self.walls and (x + dx, y + dy) not in self.robots:
            x, y = x + dx, y + dy
        self.robots[robot] = (x, y)
        self.steps += 1
        solved = self.robots[self.target] == self.goal
        over = solved or self.steps >= 20
        if over:
            self.robots, self.steps = list(self.start), 0
        return self.picture() if pictures else self.planes(), 0.99 if solved else -0.01, over

    def planes(self) -> np.ndarray:
        """Walls ×4, goal, target, robots."""
        planes = np.zeros((6 + len(self.robots), self.size, self.size), np.uint8)
        if not hasattr(self, "wall_planes"):
            self.wall_planes = np.zeros((4, self.size, self.size), np.uint8)
            for (x, y), way in self.walls:
                self.wall_planes[way, y, x] = 1
        planes[:4] = self.wall_planes
        for plane, (x, y) in enumerate([self.goal, self.robots[self.target], *self.robots], start=4):
            planes[plane, y, x] = 1
        return planes

    def picture(self) -> np.ndarray:
        """Draw all of it, large, and make it smaller."""
        side = self.size * CELL
        image = Image.new("RGB", (side, side), (250, 249, 245))
        pen = ImageDraw.Draw(image)
        for k in range(0, side + 1, CELL):
            pen.line([(k, 0), (k, side)], fill=(222, 220, 212))
            pen.line([(0, k), (side, k)], fill=(222, 220, 212))
        for (x, y), way in self.walls:
            left, top, right, bottom = x * CELL, y * CELL, (x + 1) * CELL, (y + 1) * CELL
            corners = ((left, top), (right, top), (right, bottom), (left, bottom))
            pen.line([corners[way], corners[(way + 1) % 4]], fill=(38, 42, 51), width=3)
        for (x, y), colour in zip(self.robots, COLOURS, strict=False):
            pen.ellipse([x * CELL + 3, y * CELL + 3, (x + 1) * CELL - 3, (y + 1) * CELL - 3], fill=colour)
        pen.polygon(self._star(), fill=tuple(part * 3 // 4 for part in COLOURS[self.target]))
        return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.LANCZOS))

    def _star(self) -> list[tuple[float, float]]:
        x, y = (self.goal[0] + 0.5) * CELL, (self.goal[1] + 0.5) * CELL
        points = []
        for k in range(10):
            radius = CELL * (0.46 if k % 2 == 0 else 0.19)
            points.append((x + radius * math.sin(k * math.pi / 5), y - radius * math.cos(k * math.pi / 5)))
        return points
