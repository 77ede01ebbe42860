"""Options of the game, validated once, and the codes that kernels and reference use for them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hotloop.errors import HotloopError
from hotloop.training.envs.validate import build_config, check_choice, check_whole

OBSERVATIONS = ("planes", "stops", "symbolic", "rgb")
PLANES, STOPS, SYMBOLIC, RGB = range(len(OBSERVATIONS))
CAUSES = (None, "solved", "timeout")
"""Why an episode ended, indexed by the kernel's code."""

RUNNING, SOLVED, TIMEOUT = range(len(CAUSES))
UP, RIGHT, DOWN, LEFT = range(4)
SMALLEST, LARGEST, MAX_ROBOTS = 4, 16, 4
PICTURE = 128
"""Side of an `rgb` observation, in pixels."""

LARGE_BOARD = 10
UNKNOWN = -1
"""Optimal length of a board that has not been solved."""


class Level(NamedTuple):
    """Limits, inclusive, for the shortest solution of a board: its length and the number of robots it moves."""

    shortest: int
    longest: int
    fewest_robots: int
    most_robots: int

    def contains(self, length: int, moved: int) -> bool:
        """Return whether a board whose shortest solution has this length and moves so many robots is of this level."""
        return self.shortest <= length <= self.longest and self.fewest_robots <= moved <= self.most_robots


LEVELS = (Level(1, 2, 1, 1), Level(2, 4, 1, 1), Level(3, 8, 1, 1), Level(2, 4, 2, 3))
LONGEST = max(level.longest for level in LEVELS)


@dataclass(frozen=True, slots=True)
class Rewards:
    """Reward of a step: `step` always, plus `solved` in the step that solves the board."""

    step: float = -0.01
    solved: float = 1.0


@dataclass(frozen=True, slots=True)
class RicochetConfig:
    """Options of the game. Invalid values are rejected here, so later code does not check again."""

    size: int = 16
    robots: int = 4
    observation: str = "planes"
    level: int | None = None
    """Play only boards whose shortest solution fits `LEVELS[level]`; None: any board, even one without a solution."""
    bank: str | os.PathLike[str] | None = None
    """A puzzle bank to draw boards from; None: every board is generated."""
    held_out: bool = False
    """Whether to play the bank's evaluation boards instead of its training boards."""
    noop: bool = False
    max_steps: int = 20
    rewards: Rewards = field(default_factory=Rewards)

    def __post_init__(self) -> None:
        if isinstance(self.rewards, Mapping):
            object.__setattr__(self, "rewards", build_config("Ricochet", Rewards, self.rewards, "reward"))
        check_choice("observation", self.observation, OBSERVATIONS)
        check_whole("size", self.size, SMALLEST, LARGEST)
        check_whole("robots", self.robots, 1, MAX_ROBOTS)
        if self.level is not None:
            check_whole("level", self.level, 0, len(LEVELS) - 1)
            if LEVELS[self.level].fewest_robots > self.robots:
                raise HotloopError(
                    f"level {self.level} moves {LEVELS[self.level].fewest_robots} robots, and robots is {self.robots}: "
                    "give more robots or another level"
                )
        check_whole("max_steps", self.max_steps, 1)
        if self.held_out and self.bank is None:
            raise HotloopError("held_out needs a bank: give bank too")

    @property
    def actions(self) -> int:
        """Number of actions: four per robot, plus one that does nothing if `noop` is set."""
        return 4 * self.robots + bool(self.noop)

    @property
    def structures(self) -> int:
        """Walls of each kind in each quadrant, if there is room."""
        return 4 if self.size >= LARGE_BOARD else 2

    @property
    def planes(self) -> int:
        """Number of observed planes: walls ×4, goal, target, the robots; with `stops`, four more per robot."""
        return 6 + self.robots * (5 if self.observation == "stops" else 1)

    @property
    def numbers(self) -> int:
        """Length of a `symbolic` observation."""
        return 2 + 7 * self.robots
