"""What is played and what is seen: options, checked once, and the codes by which kernel and twin know them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from hotloop.errors import HotloopError

FEATURES: dict[str, int] = {"basic": 10, "flood": 13, "selective": 18, "enhanced": 23, "grid": 0}
"""Feature sets and their sizes; each holds the ones before it. `grid` is no vector but the board itself."""

BASIC, FLOOD, SELECTIVE, ENHANCED, GRID = range(len(FEATURES))
LEVELS: dict[str, int] = {name: level for level, name in enumerate(FEATURES)}
ACTIONS: dict[str, int] = {"relative": 3, "absolute": 4}
CAUSES = (None, "wall", "self", "entrapment", "timeout", "win")
"""How an episode ended, by the kernel's code."""

RUNNING, WALL, SELF, ENTRAPMENT, TIMEOUT, WIN = range(len(CAUSES))
UP, RIGHT, DOWN, LEFT = range(4)
START_LENGTH = 3
SMALLEST, LARGEST = 5, 64
NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Rewards:
    """What a step is worth. Food and death stand alone; `timeout` comes on top of the step that runs out of time."""

    food: float = 10.0
    death: float = -10.0
    step: float = -0.01
    shaping: float = 0.5
    """Times (distance to the food before − after) ÷ board, in steps that neither eat nor kill."""
    timeout: float = -5.0


@dataclass(frozen=True, slots=True)
class SnakeConfig:
    """The game. A wrong value is refused here, so nothing behind it has to check again."""

    board: int = 10
    features: str = "basic"
    actions: str = "relative"
    max_steps: int = 1000
    tail_free: bool = False
    """May the head move into the cell that the tail is about to leave? The study says no."""
    rewards: Rewards = field(default_factory=Rewards)

    def __post_init__(self) -> None:
        if isinstance(self.rewards, Mapping):
            object.__setattr__(self, "rewards", build(Rewards, "reward", self.rewards))
        _one_of("features", self.features, FEATURES)
        _one_of("actions", self.actions, ACTIONS)
        if not _is_whole(self.board) or not SMALLEST <= self.board <= LARGEST:
            raise HotloopError(f"board is {self.board!r}: give a whole number from {SMALLEST} to {LARGEST}")
        if not _is_whole(self.max_steps) or self.max_steps < 1:
            raise HotloopError(f"max_steps is {self.max_steps!r}: give a whole number of at least 1")

    @property
    def cells(self) -> int:
        """Cells of the board; a snake of this length has won."""
        return self.board * self.board


def build(kind: type[Any], what: str, options: Mapping[str, Any]) -> Any:
    """Make a configuration of keywords; a keyword that it does not know is an error that lists those it does."""
    known = [each.name for each in fields(kind)]
    for name in options:
        if name not in known:
            raise HotloopError(f"Snake has no {what} {name!r}: there are {', '.join(known)}")
    return kind(**options)


def _one_of(what: str, value: object, known: Mapping[str, int]) -> None:
    if value not in known:
        raise HotloopError(f"{what} is {value!r}: give one of {', '.join(known)}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
