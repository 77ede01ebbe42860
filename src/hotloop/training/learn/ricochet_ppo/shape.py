"""What a network for boards looks like, and how pictures of boards are cut into pieces."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from hotloop.errors import HotloopError

PICTURE = 128
GOAL = 4
"""Planes: walls ×4, goal, target robot, then each robot (and whatever follows)."""
COLOURS = 3
PAPER = (250.0, 249.0, 245.0)
"""Colour of a picture where nothing is drawn."""
CONTRAST = 64.0
"""How much darker than the paper counts as 1: a disc or a wall then moves a new unit by about 1."""


@dataclass(frozen=True, slots=True)
class BoardShape:
    """What a network for boards looks like."""

    observation: tuple[int, ...]
    """`(planes, side, side)` of 0 and 1, or `(128, 128, 3)` for pictures."""
    actions: int
    """Four a robot."""
    side: int
    """Of the board, in cells."""
    core: Literal["sweep", "drc", "lstm"] = "sweep"
    """Sweeps along rows and columns; convolutional LSTM cells; or a CNN and an LSTM that know nothing of cells."""
    channels: int = 16
    layers: int = 2
    """Of sweeps, or of cells."""
    repeats: int = 1
    """How often the cells think about a step."""
    hidden: int = 64
    """Width of the last layer; of the LSTM."""
    read_planes: bool = False
    """Of pictures: read planes out of them, and go on with those as if they had been seen."""

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
        """Does it see pixels?"""
        return self.observation == (PICTURE, PICTURE, COLOURS)

    @property
    def robots(self) -> int:
        """How many there are to move."""
        return self.actions // 4

    @property
    def planes(self) -> BoardShape:
        """The same network for planes of walls, goal, target and robots."""
        return replace(self, observation=(GOAL + 2 + self.robots, self.side, self.side), read_planes=False)

    @property
    def memory(self) -> tuple[int, ...]:
        """What is remembered of one board, `(states, ...)`: a hidden and a cell state each; none without memory."""
        if self.core == "lstm":
            return (2, self.hidden)
        return (2 * self.layers if self.core == "drc" else 0, self.channels, self.side, self.side)


def pieces(pictures: Tensor, across: int) -> Tensor:
    """Cut pictures uint8 `[B, P, P, 3]` into squares, `[B, across, across, 3 · (P / across)²]`: how dark they are.

    Blank paper is 0. Most of a picture is paper: were it 1, nearly all inputs of a layer would be, and one step of Adam
    would move each of its units by their number times the learning rate, on every board alike.
    """
    boards, side = pictures.shape[:2]
    width = side // across
    cut = pictures.view(boards, across, width, across, width, COLOURS).permute(0, 1, 3, 2, 4, 5)
    paper = torch.tensor(PAPER, device=pictures.device).repeat(width * width)
    return cut.reshape(boards, across, across, -1).float().sub_(paper).mul_(-1 / CONTRAST)
