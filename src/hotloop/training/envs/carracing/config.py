"""Options of the game, validated once."""

from __future__ import annotations

from dataclasses import dataclass

from hotloop.errors import HotloopError
from hotloop.training.envs.carracing.memory_layout import VECTOR_NUMBERS
from hotloop.training.envs.validate import at_least_one, check_choice, is_whole

STATES = ("visual", "vector")
SIZES = (64, 84, 96)
COLOURINGS: dict[str, int] = {"grey": 1, "rgb": 3}
"""Colour modes and their number of channels."""

SUPERSAMPLING = (1, 2, 4)
ACTION_FORMS: dict[str, int] = {"three": 3, "two": 2, "discrete": 5}
"""Forms of an action and their number of values, or of choices for `discrete`."""


@dataclass(frozen=True, slots=True)
class CarRacingConfig:
    """Options of the game. Invalid values are rejected here, so later code does not check again."""

    state: str = "visual"
    """`visual`, a picture, or `vector`, 36 numbers."""
    size: int = 96
    """Side of the picture in pixels."""
    colour: str = "grey"
    supersample: int = 2
    """Samples along each side of a pixel: 1 is fastest, 2 is close to the official picture, 4 is closer."""
    indicators: bool = True
    """Whether to draw the strip with score, speed, wheels, steering and turning."""
    action_form: str = "three"
    action_repeat: int = 1
    """Number of frames for which an action is repeated; only the last is drawn."""
    max_frames: int = 1000
    """An episode is truncated after this many frames."""
    patience: int = 0
    """An episode is also truncated after this many frames without a new tile; 0: never."""
    lap_complete_percent: float = 0.95
    """Fraction of tiles that must be visited for a lap to count. The name is Gymnasium's."""
    domain_randomize: bool = False
    """Whether each episode has random colours of road and grass."""

    def __post_init__(self) -> None:
        check_choice("state", self.state, STATES)
        check_choice("size", self.size, SIZES)
        check_choice("colour", self.colour, COLOURINGS)
        check_choice("supersample", self.supersample, SUPERSAMPLING)
        check_choice("action_form", self.action_form, ACTION_FORMS)
        at_least_one("action_repeat", self.action_repeat)
        at_least_one("max_frames", self.max_frames)
        if not is_whole(self.patience) or self.patience < 0:
            raise HotloopError(f"patience is {self.patience!r}: give a whole number of frames, or 0")
        if not 0 < self.lap_complete_percent <= 1:
            raise HotloopError(f"lap_complete_percent is {self.lap_complete_percent!r}: give a number from 0 to 1")

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of an observation: [36], [S, S] or [S, S, 3]."""
        if self.state == "vector":
            return (VECTOR_NUMBERS,)
        return (self.size, self.size) if self.colour == "grey" else (self.size, self.size, 3)
