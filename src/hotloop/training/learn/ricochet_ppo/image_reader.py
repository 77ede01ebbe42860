"""Predicts planes from pictures: the walls of each cell, and the cells of the robots and the goal.

The planes are those of `hotloop/Ricochet-v0`, as probabilities instead of 0 and 1: of a wall for each cell, and of a
robot or the goal over all cells. The network for planes then uses them as its input. The goal has the colour of its
robot, so its cell and its robot are predicted together. The gradients of policy and value train the reader; where the
true planes are known, `reading_loss` trains it directly. Attribute names are part of checkpoints: do not rename them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as f

from hotloop.training.learn.ricochet_ppo.shape import COLOURS, GOAL, PICTURE, BoardShape

WALLS, HIDDEN = 4, 32
ROBOTS = GOAL + 2
"""Index of the first robot's plane."""


class Reading(NamedTuple):
    """Predictions for B boards, as logits."""

    walls: Tensor
    """`[B, 4, S · S]`: a wall up, right, down, left of each cell."""
    robots: Tensor
    """`[B, R, S · S]`: the cell of each robot; softmax over cells."""
    goal: Tensor
    """`[B, R, S · S]`: the goal's cell and robot; softmax over both."""


class Reader(nn.Module):
    """Predicts the content of each cell from its piece of the picture."""

    def __init__(self, shape: BoardShape) -> None:
        super().__init__()
        self.robots = shape.robots
        self.piece = nn.Linear(COLOURS * (PICTURE // shape.side) ** 2, HIDDEN)
        self.told = nn.Linear(HIDDEN, WALLS + 2 * shape.robots)

    def forward(self, cells: Tensor) -> Reading:
        """Pieces `[B, S, S, D]` → predictions."""
        logits = self.told(self.piece(cells).relu_()).float().flatten(1, 2).transpose(1, 2)
        return Reading(*logits.split([WALLS, self.robots, self.robots], dim=1))


def planes_of(reading: Reading, side: int) -> Tensor:
    """Convert logits to planes of probabilities, `[B, 6 + R, S, S]`; a robot's plane and the goal's sum to 1."""
    robots = reading.robots.softmax(dim=2)
    goal = reading.goal.flatten(1).softmax(dim=1).view_as(reading.goal)
    target = (goal.sum(dim=2, keepdim=True) * robots).sum(dim=1, keepdim=True)
    planes = torch.cat([reading.walls.sigmoid(), goal.sum(dim=1, keepdim=True), target, robots], dim=1)
    return planes.unflatten(2, (side, side))


def reading_loss(reading: Reading, planes: Tensor) -> Tensor:
    """Cross entropy in nats, averaged over boards: of the walls per cell, the robots per robot, and the goal.

    Args:
        reading: Predictions for B boards.
        planes: The true planes, `[B, 6 + R, S, S]` of 0 and 1.
    """
    true = planes.flatten(2).to(reading.walls.dtype)
    goal_cell, target, robots = true[:, GOAL : GOAL + 1], true[:, GOAL + 1 : ROBOTS], true[:, ROBOTS:]
    wall_loss = f.binary_cross_entropy_with_logits(reading.walls, true[:, :WALLS]) * WALLS
    robot_loss = -(robots * reading.robots.log_softmax(dim=2)).sum(dim=2).mean()
    goal_of_robot = (target * robots).sum(dim=2, keepdim=True) * goal_cell
    goal_loss = (
        -(goal_of_robot * reading.goal.flatten(1).log_softmax(dim=1).view_as(reading.goal)).sum(dim=(1, 2)).mean()
    )
    return wall_loss + robot_loss + goal_loss
