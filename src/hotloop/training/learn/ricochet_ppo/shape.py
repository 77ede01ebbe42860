"""Sizes and options of a network for boards, and how pictures are cut into cells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from hotloop.errors import HotloopError

PICTURE = 128
GOAL = 4
"""Index of the goal's plane. Planes are: 4 of walls, goal, target robot, each robot, and any further ones."""
COLOURS = 3
PAPER = (250.0, 249.0, 245.0)
"""Colour of a picture where nothing is drawn."""
CONTRAST = 64.0
"""Darkness that is scaled to 1: a disc or a wall then changes an untrained unit by about 1."""


@dataclass(frozen=True, slots=True)
class BoardShape:
    """Sizes and options of a network for boards."""

    observation: tuple[int, ...]
    """`(planes, side, side)` of 0 and 1, or `(128, 128, 3)` for pictures."""
    actions: int
    """Four per robot."""
    side: int
    """Side of the board, in cells."""
    core: Literal["sweep", "drc", "lstm"] = "sweep"
    """Sweeps along rows and columns; convolutional LSTM cells; or NatureCNN and an LSTM, which ignore cells."""
    channels: int = 16
    layers: int = 2
    """Number of layers of the core."""
    repeats: int = 1
    """How often convolutional LSTM cells are applied per step."""
    hidden: int = 64
    """Width of the last hidden layer, or of the LSTM."""
    read_planes: bool = False
    """Predict planes from pictures, and use them as the input of the network for planes."""

    def __post_init__(self) -> None:
        if min(self.channels, self.layers, self.repeats, self.hidden) < 1:
            raise HotloopError("channels, layers, repeats and hidden: give at least 1 of each")
        if self.actions < 4 or self.actions % 4:
            raise HotloopError(f"{self.actions} actions: give four a robot")
        if not self.is_picture and self.observation[0] < GOAL + 2 + self.robots:
            raise HotloopError(
                f"{self.observation[0]} planes are too few for {self.robots} robots: give planes or stops"
            )
        if self.is_picture and self.core != "lstm" and PICTURE % self.side:
            raise HotloopError(f"a picture of {PICTURE} pixels cannot be cut into {self.side} cells: use planes")
        if self.core == "lstm" and not self.is_picture:
            raise HotloopError("the core lstm reads pictures: give the observation rgb")
        if self.read_planes and (self.core == "lstm" or not self.is_picture):
            raise HotloopError("planes are read out of pictures, for the cores sweep and drc: give --no-read-planes")

    @property
    def is_picture(self) -> bool:
        """Whether observations are pictures."""
        return self.observation == (PICTURE, PICTURE, COLOURS)

    @property
    def robots(self) -> int:
        """Number of robots."""
        return self.actions // 4

    @property
    def planes(self) -> BoardShape:
        """The shape of the same network for planes of walls, goal, target and robots."""
        return replace(self, observation=(GOAL + 2 + self.robots, self.side, self.side), read_planes=False)

    @property
    def memory(self) -> tuple[int, ...]:
        """Shape of the memory of one board, `(states, ...)`: hidden and cell states; 0 states without memory."""
        if self.core == "lstm":
            return (2, self.hidden)
        return (2 * self.layers if self.core == "drc" else 0, self.channels, self.side, self.side)


def pieces(pictures: Tensor, across: int) -> Tensor:
    """Cut pictures uint8 `[B, P, P, 3]` into squares of darkness, `[B, across, across, 3 · (P / across)²]`.

    Blank paper is 0. Most of a picture is paper: if paper were 1, one step of Adam would change each unit of the first
    layer by about the number of its inputs times the learning rate, in the same way on every board.
    """
    boards, side = pictures.shape[:2]
    width = side // across
    cut = pictures.view(boards, across, width, across, width, COLOURS).permute(0, 1, 3, 2, 4, 5)
    paper = torch.tensor(PAPER, device=pictures.device).repeat(width * width)
    return cut.reshape(boards, across, across, -1).float().sub_(paper).mul_(-1 / CONTRAST)
