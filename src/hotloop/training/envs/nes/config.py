"""Options of the Mario environment, validated once."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from hotloop.errors import HotloopError
from hotloop.training.envs.validate import check_choice, check_whole

SIMPLE: tuple[tuple[str, ...], ...] = (
    (),
    ("RIGHT",),
    ("RIGHT", "A"),
    ("RIGHT", "B"),
    ("RIGHT", "A", "B"),
    ("A",),
    ("LEFT",),
)
COMPLEX = (*SIMPLE, ("LEFT", "A"), ("LEFT", "B"), ("LEFT", "A", "B"), ("DOWN",), ("UP",))
ACTIONS: dict[str, tuple[tuple[str, ...], ...]] = {"simple": SIMPLE, "complex": COMPLEX}
SIZES = (84, 128)
STARTS = ("begin", "route", "reached")
RANDOM = "random"
MAX_SKIPPED = 10_000
"""Limit for frames that run without a new action. While they run, the process does not react to signals."""


@dataclass(frozen=True, slots=True)
class MarioRewards:
    """Reward of a step."""

    progress: float = 0.02
    """Per pixel to the right; pixels to the left count negative."""
    death: float = -1.0
    flag: float = 2.0
    deadlock: float = -0.5
    """Added when `patience` has run out."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
                raise HotloopError(f"rewards: {each.name} is {value!r}: give a number")


@dataclass(frozen=True, slots=True)
class MarioConfig:
    """Options of the game. Invalid values are rejected here, so later code does not check again."""

    rom: str | None = None
    """File of the cartridge; None: our own game, `runner`."""
    rom_unchecked: bool = False
    """Whether to accept any cartridge."""
    level: str = "1-1"
    """World and level, or `random` for a random level in each episode."""
    actions: str = "simple"
    """`simple`: 7 combinations of buttons, `complex`: 12."""
    skip: int = 4
    """Number of frames for which an action is held. The observation is the maximum of the last two."""
    size: int = 84
    """Side of the observation in pixels."""
    start: str = "begin"
    """Where episodes start: `begin` of the level, along a `route` that finishes it, or at places `reached` before."""
    begin_share: float = 0.0
    """Fraction of episodes that start at the beginning of the level whatever `start` is."""
    patience: int = 40
    """An episode ends after this many steps without progress."""
    max_steps: int = 0
    """An episode is truncated after this many steps; 0: never. The game also has its own time limit."""
    noops: int = 0
    """An episode starts with a random number of frames without input, up to this many."""
    sticky: float = 0.0
    """Probability that a step repeats the previous action."""
    rewards: MarioRewards = field(default_factory=MarioRewards)

    def __post_init__(self) -> None:
        check_choice("actions", self.actions, ACTIONS)
        check_choice("size", self.size, SIZES)
        check_choice("start", self.start, STARTS)
        check_whole("skip", self.skip, 1, MAX_SKIPPED)
        check_whole("patience", self.patience, 1)
        check_whole("max_steps", self.max_steps, 0)
        check_whole("noops", self.noops, 0, MAX_SKIPPED)
        for name, limit in (("sticky", "below 1"), ("begin_share", "1")):
            value = getattr(self, name)
            real = isinstance(value, int | float) and not isinstance(value, bool)
            if not real or not 0 <= value <= 1 or (value == 1 and limit != "1"):
                raise HotloopError(f"{name} is {value!r}: give a number from 0 to {limit}")
        if not isinstance(self.rewards, MarioRewards):
            raise HotloopError(f"rewards is {self.rewards!r}: give MarioRewards(...)")
        if self.level != RANDOM:
            parse_level(self.level)


def parse_level(name: object) -> tuple[int, int]:
    """Return world and level, counted from 1, of a name such as 1-2."""
    world, _, stage = str(name).partition("-")
    if not isinstance(name, str) or not (world.isdecimal() and stage.isdecimal() and int(world) and int(stage)):
        raise HotloopError(f"level is {name!r}: give a world and a level such as 1-2, or {RANDOM}")
    return int(world), int(stage)
