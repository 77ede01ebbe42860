"""Reads planes out of pictures: of each piece which walls its cell has, and in which cells robots and goal are.

What it reads are the planes of `hotloop/Ricochet-v0`, as shares instead of 0 and 1: how sure it is of a wall, and how a
robot or the goal spreads over the cells. So the network for planes goes on with them, and its heads read in the cells
of robots and goal. The star has the colour of its robot: where the goal is and whose it is are read as one thing.
Policy and value teach it what helps them. Where the true planes are known, `reading_loss` teaches it to read.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as f

from hotloop.training.learn.ricochet_ppo.shape import COLOURS, GOAL, PICTURE, BoardShape

WALLS, HIDDEN = 4, 32
ROBOTS = GOAL + 2
"""The first plane of a robot."""


class Reading(NamedTuple):
    """Logits of what is on B boards."""

    walls: Tensor
    """`[B, 4, S · S]`: a wall up, right, down, left of each cell."""
    robots: Tensor
    """`[B, R, S · S]`: the robot is in this cell and in no other."""
    goal: Tensor
    """`[B, R, S · S]`: the goal is in this cell and is this robot's, of all cells and robots."""


class Reader(nn.Module):
    """Tells of each piece of a picture what is in it."""

    def __init__(self, shape: BoardShape) -> None:
        super().__init__()
        self.robots = shape.robots
        self.piece = nn.Linear(COLOURS * (PICTURE // shape.side) ** 2, HIDDEN)
        self.told = nn.Linear(HIDDEN, WALLS + 2 * shape.robots)

    def forward(self, cut: Tensor) -> Reading:
        """Pieces `[B, S, S, D]` → what is on the boards."""
        told = self.told(self.piece(cut).relu_()).float().flatten(1, 2).transpose(1, 2)
        return Reading(*told.split([WALLS, self.robots, self.robots], dim=1))


def planes_of(reading: Reading, side: int) -> Tensor:
    """Turn logits into planes `[B, 6 + R, S, S]` of shares, 0 to 1; those of a robot or the goal sum to 1."""
    robots = reading.robots.softmax(dim=2)
    goal = reading.goal.flatten(1).softmax(dim=1).view_as(reading.goal)
    target = (goal.sum(dim=2, keepdim=True) * robots).sum(dim=1, keepdim=True)
    planes = torch.cat([reading.walls.sigmoid(), goal.sum(dim=1, keepdim=True), target, robots], dim=1)
    return planes.unflatten(2, (side, side))


def reading_loss(reading: Reading, planes: Tensor) -> Tensor:
    """Mean over boards of what reading them costs in nats: walls a cell, robots a robot, and the goal.

    Args:
        reading: Of B boards.
        planes: What is true, `[B, 6 + R, S, S]` of 0 and 1.
    """
    true = planes.flatten(2).to(reading.walls.dtype)
    place, target, robots = true[:, GOAL : GOAL + 1], true[:, GOAL + 1 : ROBOTS], true[:, ROBOTS:]
    walls = f.binary_cross_entropy_with_logits(reading.walls, true[:, :WALLS]) * WALLS
    where = -(robots * reading.robots.log_softmax(dim=2)).sum(dim=2).mean()
    whose = (target * robots).sum(dim=2, keepdim=True) * place
    goal = -(whose * reading.goal.flatten(1).log_softmax(dim=1).view_as(reading.goal)).sum(dim=(1, 2)).mean()
    return walls + where + goal
