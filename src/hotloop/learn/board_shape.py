"""What a network for boards looks like, and how pictures of boards are cut into pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from hotloop.errors import HotloopError

PICTURE = 128
GOAL = 4
"""Planes: walls ×4, goal, target robot, then each robot (and whatever follows)."""
COLOURS = 3


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

    @property
    def is_picture(self) -> bool:
        """Does it see pixels?"""
        return self.observation == (PICTURE, PICTURE, COLOURS)

    @property
    def robots(self) -> int:
        """How many there are to move."""
        return self.actions // 4

    @property
    def memory(self) -> tuple[int, ...]:
        """What is remembered of one board, `(states, ...)`: a hidden and a cell state each; none without memory."""
        if self.core == "lstm":
            return (2, self.hidden)
        return (2 * self.layers if self.core == "drc" else 0, self.channels, self.side, self.side)


def pieces(pictures: Tensor, across: int) -> Tensor:
    """Cut pictures uint8 `[B, P, P, 3]` into squares, floats 0 to 1, `[B, across, across, 3 · (P / across)²]`."""
    boards, side = pictures.shape[:2]
    cut = pictures.view(boards, across, side // across, across, side // across, COLOURS).permute(0, 1, 3, 2, 4, 5)
    return cut.reshape(boards, across, across, -1).float().mul_(1 / 255)
