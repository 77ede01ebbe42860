"""What is played and what is seen: options, checked once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

from hotloop.errors import HotloopError
from hotloop.training.envs.carracing.memory_layout import VECTOR_NUMBERS
from hotloop.training.envs.validate import at_least_one

STATES = ("visual", "vector")
SIZES = (64, 84, 96)
COLOURINGS: dict[str, int] = {"grey": 1, "rgb": 3}
"""Ways of colouring and their channels."""

SUPERSAMPLING = (1, 2, 4)
ACTION_FORMS: dict[str, int] = {"three": 3, "two": 2, "discrete": 5}
"""Forms of an action and their sizes."""


@dataclass(frozen=True, slots=True)
class CarRacingConfig:
    """The game. A wrong value is refused here, so nothing behind it has to check again."""

    state: str = "visual"
    """`visual`, a picture, or `vector`, 36 numbers."""
    size: int = 96
    """Pixels a side."""
    colour: str = "grey"
    supersample: int = 2
    """Samples along the side of a pixel: 1 is fastest, 2 is close to the official picture, 4 closer."""
    indicators: bool = True
    """Is there a strip with score, speed, wheels, steering and turning below?"""
    action_form: str = "three"
    action_repeat: int = 1
    """Frames for which an action is held; only the last is drawn."""
    max_frames: int = 1000
    """An episode is truncated after this many frames."""
    patience: int = 0
    """It is also truncated after this many frames without a new tile; 0: never."""
    lap_complete_percent: float = 0.95
    """The share of tiles, despite Gymnasium's name for it, that must be visited for a lap to count."""
    domain_randomize: bool = False
    """Are the colours of road and grass drawn anew with each episode?"""

    def __post_init__(self) -> None:
        one_of("state", self.state, STATES)
        one_of("size", self.size, SIZES)
        one_of("colour", self.colour, COLOURINGS)
        one_of("supersample", self.supersample, SUPERSAMPLING)
        one_of("action_form", self.action_form, ACTION_FORMS)
        at_least_one("action_repeat", self.action_repeat)
        at_least_one("max_frames", self.max_frames)
        if not isinstance(self.patience, int) or isinstance(self.patience, bool) or self.patience < 0:
            raise HotloopError(f"patience is {self.patience!r}: give a whole number of frames, or 0")
        if not 0 < self.lap_complete_percent <= 1:
            raise HotloopError(f"lap_complete_percent is {self.lap_complete_percent!r}: give a number from 0 to 1")

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of what the agent sees: [36], [S, S] or [S, S, 3]."""
        if self.state == "vector":
            return (VECTOR_NUMBERS,)
        return (self.size, self.size) if self.colour == "grey" else (self.size, self.size, 3)


def build(options: Mapping[str, Any]) -> CarRacingConfig:
    """Make a configuration of keywords; a keyword that it does not know is an error that lists those it does."""
    known = [each.name for each in fields(CarRacingConfig)]
    for name in options:
        if name not in known:
            raise HotloopError(f"CarRacing has no option {name!r}: there are {', '.join(known)}")
    return CarRacingConfig(**options)


def one_of(what: str, value: object, known: Collection[Any]) -> None:
    """Refuse a value that is not among those known."""
    if isinstance(value, bool) or value not in known:
        raise HotloopError(f"{what} is {value!r}: give one of {', '.join(map(str, known))}")
