"""What is played and what is seen: options, checked once, and the codes by which kernels and twin know them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from hotloop.errors import HotloopError

OBSERVATIONS = ("planes", "stops", "symbolic", "rgb")
PLANES, STOPS, SYMBOLIC, RGB = range(len(OBSERVATIONS))
CAUSES = (None, "solved", "timeout")
"""How an episode ended, by the kernel's code."""

RUNNING, SOLVED, TIMEOUT = range(len(CAUSES))
UP, RIGHT, DOWN, LEFT = range(4)
SMALLEST, LARGEST, MOST_ROBOTS = 4, 16, 4
PICTURE = 128
"""Side of what the agent sees as `rgb`, in pixels."""

LARGE_BOARD = 10
UNKNOWN = -1
"""Optimal length of a board that nobody solved."""


class Level(NamedTuple):
    """What the shortest solution of a board must be like; both ends count in."""

    shortest: int
    longest: int
    fewest_robots: int
    most_robots: int

    def holds(self, length: int, moved: int) -> bool:
        """Does a board whose shortest solution is such belong to this level?"""
        return self.shortest <= length <= self.longest and self.fewest_robots <= moved <= self.most_robots


LEVELS = (Level(1, 2, 1, 1), Level(2, 4, 1, 1), Level(3, 8, 1, 1), Level(2, 4, 2, 3))
LONGEST = max(level.longest for level in LEVELS)


@dataclass(frozen=True, slots=True)
class Rewards:
    """What a step is worth: `step` always, `solved` on top of it in the step that solves the board."""

    step: float = -0.01
    solved: float = 1.0


@dataclass(frozen=True, slots=True)
class RicochetConfig:
    """The game. A wrong value is refused here, so nothing behind it has to check again."""

    size: int = 16
    robots: int = 4
    observation: str = "planes"
    level: int | None = None
    """Only boards whose shortest solution fits `LEVELS[level]`; None: any board, also one without a solution."""
    bank: str | os.PathLike[str] | None = None
    """A puzzle bank to draw boards from; None: every board is made anew."""
    held_out: bool = False
    """Which part of the bank: the boards to train on, or those kept for evaluation."""
    noop: bool = False
    max_steps: int = 20
    rewards: Rewards = field(default_factory=Rewards)

    def __post_init__(self) -> None:
        if isinstance(self.rewards, Mapping):
            object.__setattr__(self, "rewards", build(Rewards, "reward", self.rewards))
        if self.observation not in OBSERVATIONS:
            raise HotloopError(f"observation is {self.observation!r}: give one of {', '.join(OBSERVATIONS)}")
        check_whole("size", self.size, SMALLEST, LARGEST)
        check_whole("robots", self.robots, 1, MOST_ROBOTS)
        if self.level is not None:
            check_whole("level", self.level, 0, len(LEVELS) - 1)
            if LEVELS[self.level].fewest_robots > self.robots:
                raise HotloopError(
                    f"level {self.level} moves {LEVELS[self.level].fewest_robots} robots, and robots is {self.robots}: "
                    "give more robots or another level"
                )
        if not is_whole(self.max_steps) or self.max_steps < 1:
            raise HotloopError(f"max_steps is {self.max_steps!r}: give a whole number of at least 1")
        if self.held_out and self.bank is None:
            raise HotloopError("held_out is asked for without a bank: give bank too")

    @property
    def actions(self) -> int:
        """How many actions there are: four a robot, and one more that does nothing, if wanted."""
        return 4 * self.robots + bool(self.noop)

    @property
    def structures(self) -> int:
        """Walls of each kind in each quadrant, where there is room."""
        return 4 if self.size >= LARGE_BOARD else 2

    @property
    def planes(self) -> int:
        """Planes that the agent sees: walls ×4, goal, target, the robots; with `stops`, four more a robot."""
        return 6 + self.robots * (5 if self.observation == "stops" else 1)

    @property
    def numbers(self) -> int:
        """Numbers that the agent sees as `symbolic`."""
        return 2 + 7 * self.robots


def build(kind: type[Any], what: str, options: Mapping[str, Any]) -> Any:
    """Make a configuration of keywords; a keyword that it does not know is an error that lists those it does."""
    known = [each.name for each in fields(kind)]
    for name in options:
        if name not in known:
            raise HotloopError(f"Ricochet has no {what} {name!r}: there are {', '.join(known)}")
    return kind(**options)


def check_whole(what: str, value: object, least: int, most: int) -> None:
    """Refuse what is no whole number within the bounds."""
    if not is_whole(value) or not least <= value <= most:  # type: ignore[operator]
        raise HotloopError(f"{what} is {value!r}: give a whole number from {least} to {most}")


def is_whole(value: object) -> bool:
    """Is it a whole number (a truth value is none)?"""
    return isinstance(value, int) and not isinstance(value, bool)
