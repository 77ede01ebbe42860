"""From what is known of each cell to a policy and a value: it is read where the robots and the goal are.

Where they are is what the game is about: averaging over the board throws it away. Planes say where to read. In pictures
it has to be found: detectors look into every cell, and what the most convinced cell says counts. As a core has told
cells what lies along their row and column, one cell can know that a robot is here and that going up solves the board.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hotloop.training.learn.ricochet_ppo.shape import GOAL, BoardShape

DETECTORS, WAYS = 64, 4


def small(layer: nn.Linear, gain: float) -> nn.Linear:
    """Begin a last layer with small weights, so that all actions are about as likely."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class PlaceHeads(nn.Module):
    """Reads the cells of the goal, the target robot and each robot; all robots are judged by the same layers."""

    def __init__(self, shape: BoardShape) -> None:
        super().__init__()
        self.robots = shape.robots
        self.robot = nn.Linear(3 * shape.channels + 1, shape.hidden)
        self.policy = small(nn.Linear(shape.hidden, WAYS), 0.01)
        self.whole = nn.Linear(3 * shape.channels, shape.hidden)
        self.value = small(nn.Linear(shape.hidden, 1), 1.0)

    def forward(self, cells: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Cells `[B, S · S, C]` and planes `[B, P, S, S]` → logits `[B, 4 · robots]` and values `[B]`."""
        where = seen[:, GOAL : GOAL + 2 + self.robots].flatten(2)
        read = torch.bmm(where, cells.to(where.dtype))
        goal, target, robots = read[:, :1], read[:, 1:2], read[:, 2:]
        is_target = (where[:, 1:2] * where[:, 2:]).sum(-1, keepdim=True)
        others = [each.expand(-1, self.robots, -1) for each in (target, goal)]
        each = self.robot(torch.cat([robots, *others, is_target], dim=2)).relu()
        whole = self.whole(torch.cat([robots.mean(1), target[:, 0], goal[:, 0]], dim=1)).relu()
        return self.policy(each).flatten(1), self.value(whole).squeeze(1)


class FoundHeads(nn.Module):
    """Finds out of each cell what some detectors look for, and takes what is most of it on the board."""

    def __init__(self, shape: BoardShape) -> None:
        super().__init__()
        self.find = nn.Linear(shape.channels, DETECTORS)
        self.body = nn.Linear(DETECTORS, shape.hidden)
        self.policy = small(nn.Linear(shape.hidden, shape.actions), 0.01)
        self.value = small(nn.Linear(shape.hidden, 1), 1.0)

    def forward(self, cells: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Cells `[B, S · S, C]` → logits `[B, A]` and values `[B]`."""
        x = self.body(self.find(cells).amax(1)).relu()
        return self.policy(x), self.value(x).squeeze(1)


class PlainHeads(nn.Module):
    """Reads numbers that have no place."""

    def __init__(self, shape: BoardShape) -> None:
        super().__init__()
        self.policy = small(nn.Linear(shape.hidden, shape.actions), 0.01)
        self.value = small(nn.Linear(shape.hidden, 1), 1.0)

    def forward(self, features: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """`[B, hidden]` → logits `[B, A]` and values `[B]`."""
        return self.policy(features), self.value(features).squeeze(1)
