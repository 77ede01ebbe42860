"""What is played, seen and rewarded in the Mario environment: options, checked once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from hotloop.errors import HotloopError

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
MOST_SKIPPED = 10_000
"""Frames that pass without an action: the emulator answers no signal meanwhile."""


@dataclass(frozen=True, slots=True)
class MarioRewards:
    """What a step gives."""

    progress: float = 0.02
    """For each pixel to the right, and against it for each to the left."""
    death: float = -1.0
    flag: float = 2.0
    deadlock: float = -0.5
    """When `patience` has run out."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
                raise HotloopError(f"rewards: {each.name} is {value!r}: give a number")


@dataclass(frozen=True, slots=True)
class MarioConfig:
    """The game. A wrong value is refused here, so nothing behind it has to check again."""

    rom: str | None = None
    """The cartridge's file; None: our own game, `runner`."""
    rom_unchecked: bool = False
    """Is any file taken?"""
    level: str = "1-1"
    """World and level, or `random`: one is drawn for each episode."""
    actions: str = "simple"
    """`simple`: 7 combinations of buttons, `complex`: 12."""
    skip: int = 4
    """Frames for which an action is held; what is seen is the larger of the last two."""
    size: int = 84
    """Pixels a side."""
    start: str = "begin"
    """Where an episode begins: `begin`, somewhere along the `route` that finishes the level, or somewhere `reached`."""
    begin_share: float = 0.0
    """The share of episodes that begin at the beginning all the same."""
    patience: int = 40
    """An episode ends after this many steps without getting further."""
    max_steps: int = 0
    """It is truncated after this many; 0: never. The game has its own clock."""
    noops: int = 0
    """Up to this many frames, by chance, pass before the first step."""
    sticky: float = 0.0
    """The chance that a step repeats the action of the one before."""
    rewards: MarioRewards = field(default_factory=MarioRewards)

    def __post_init__(self) -> None:
        one_of("actions", self.actions, ACTIONS)
        one_of("size", self.size, SIZES)
        one_of("start", self.start, STARTS)
        whole("skip", self.skip, least=1, most=MOST_SKIPPED)
        for name in ("patience", "max_steps"):
            whole(name, getattr(self, name), least=1 if name == "patience" else 0)
        whole("noops", self.noops, least=0, most=MOST_SKIPPED)
        for name, upto in (("sticky", "below 1"), ("begin_share", "1")):
            value = getattr(self, name)
            real = isinstance(value, int | float) and not isinstance(value, bool)
            if not real or not 0 <= value <= 1 or (value == 1 and upto != "1"):
                raise HotloopError(f"{name} is {value!r}: give a number from 0 to {upto}")
        if not isinstance(self.rewards, MarioRewards):
            raise HotloopError(f"rewards is {self.rewards!r}: give MarioRewards(...)")
        if self.level != RANDOM:
            parse_level(self.level)


def parse_level(name: object) -> tuple[int, int]:
    """Return world and level, from 1, of a name such as 1-2."""
    world, _, stage = str(name).partition("-")
    if not isinstance(name, str) or not (world.isdecimal() and stage.isdecimal() and int(world) and int(stage)):
        raise HotloopError(f"level is {name!r}: give a world and a level such as 1-2, or {RANDOM}")
    return int(world), int(stage)


def build(options: Mapping[str, Any]) -> MarioConfig:
    """Make a configuration of keywords; a keyword that it does not know is an error that lists those it does."""
    known = [each.name for each in fields(MarioConfig)]
    for name in options:
        if name not in known:
            raise HotloopError(f"Mario has no option {name!r}: there are {', '.join(known)}")
    return MarioConfig(**options)


def one_of(what: str, value: object, known: Collection[Any]) -> None:
    """Refuse a value that is not among those known."""
    if isinstance(value, bool) or value not in known:
        raise HotloopError(f"{what} is {value!r}: give one of {', '.join(map(str, known))}")


def whole(what: str, value: object, least: int, most: int | None = None) -> None:
    """Refuse what is not a whole number of at least `least`, and at most `most` if that is given."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        limit = "" if most is None else f", at most {most:,}"
        raise HotloopError(f"{what} is {value!r}: give a whole number of at least {least}{limit}")
