"""Heads: from features of each cell to a policy and a value, read in the cells of the robots and the goal.

Averaging over the board would lose the positions, which decide the game. Planes give the cells to read. With pictures
the cells are not known: detectors are applied to every cell, and the largest output of each counts. A cell's features
include its row and column, because the core has passed them on, so one cell can detect that a robot is here and that
moving up solves the board. Attribute names are part of checkpoints: do not rename them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hotloop.training.learn.ricochet_ppo.shape import GOAL, BoardShape

DETECTORS, WAYS = 64, 4


def initialise_output(layer: nn.Linear, gain: float) -> nn.Linear:
    """Initialise a last layer; with a small gain all actions start about equally likely."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class PlaceHeads(nn.Module):
    """Reads the cells of the goal, the target robot and each robot; all robots share the same layers."""

    def __init__(self, shape: BoardShape) -> None:
        super().__init__()
        self.robots = shape.robots
        self.robot = nn.Linear(3 * shape.channels + 1, shape.hidden)
        self.policy = initialise_output(nn.Linear(shape.hidden, WAYS), 0.01)
        self.whole = nn.Linear(3 * shape.channels, shape.hidden)
        self.value = initialise_output(nn.Linear(shape.hidden, 1), 1.0)

    def forward(self, cells: Tensor, planes: Tensor) -> tuple[Tensor, Tensor]:
        """Cells `[B, S · S, C]` and planes `[B, P, S, S]` → logits `[B, 4 · robots]` and values `[B]`."""
        where = planes[:, GOAL : GOAL + 2 + self.robots].flatten(2)
        read = torch.bmm(where, cells.to(where.dtype))
        goal, target, robots = read[:, :1], read[:, 1:2], read[:, 2:]
        is_target = (where[:, 1:2] * where[:, 2:]).sum(-1, keepdim=True)
        others = [each.expand(-1, self.robots, -1) for each in (target, goal)]
        each = self.robot(torch.cat([robots, *others, is_target], dim=2)).relu()
        whole = self.whole(torch.cat([robots.mean(1), target[:, 0], goal[:, 0]], dim=1)).relu()
        return self.policy(each).flatten(1), self.value(whole).squeeze(1)


class FoundHeads(nn.Module):
    """Applies detectors to each cell and takes the maximum of each over the board."""

    def __init__(self, shape: BoardShape) -> None:
        super().__init__()
        self.find = nn.Linear(shape.channels, DETECTORS)
        self.body = nn.Linear(DETECTORS, shape.hidden)
        self.policy = initialise_output(nn.Linear(shape.hidden, shape.actions), 0.01)
        self.value = initialise_output(nn.Linear(shape.hidden, 1), 1.0)

    def forward(self, cells: Tensor, planes: Tensor) -> tuple[Tensor, Tensor]:
        """Cells `[B, S · S, C]` → logits `[B, A]` and values `[B]`."""
        x = self.body(self.find(cells).amax(1)).relu()
        return self.policy(x), self.value(x).squeeze(1)


class PlainHeads(nn.Module):
    """Reads features without positions."""

    def __init__(self, shape: BoardShape) -> None:
        super().__init__()
        self.policy = initialise_output(nn.Linear(shape.hidden, shape.actions), 0.01)
        self.value = initialise_output(nn.Linear(shape.hidden, 1), 1.0)

    def forward(self, features: Tensor, planes: Tensor) -> tuple[Tensor, Tensor]:
        """`[B, hidden]` → logits `[B, A]` and values `[B]`."""
        return self.policy(features), self.value(features).squeeze(1)
