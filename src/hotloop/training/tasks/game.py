"""What all games have in common: finished episodes, positions to render, seeds, stacks of frames.

A game is a module of this package with `PLACE`, `LIMIT`, `REMEMBERS`, `home`, `places`, `play_episodes` and `watch`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

Act = Callable[[np.ndarray], np.ndarray]
"""Observations [N, ...] to actions [N, ...]."""

HELD_OUT = 0x5EED
"""Part of the seeds of evaluation games only, so that training and evaluation share no game."""
CHOOSING = 0xBE57
"""Part of the seeds of evaluations during training. They choose the best checkpoint, so its score on them is biased."""
TRAINING = 0x7EAC
TEXT_WIDTH = 64
"""Characters across an image in a terminal."""
SeedType = np.uint32 | np.uint64


@dataclass(frozen=True, slots=True)
class Played:
    """Finished episodes, [E] each."""

    score: np.ndarray
    """The game's own score: food eaten in Snake, the return in CarRacing."""
    returned: np.ndarray
    """Return: sum of rewards."""
    length: np.ndarray
    """Steps."""
    cause: np.ndarray
    """How each episode ended, as a word."""
    won: str
    """The word for success."""
    gap: np.ndarray | None = None
    """Steps beyond the optimum, in successful episodes, if the optimum is known."""

    def summary(self) -> dict[str, float | None]:
        """Return the values that a training run reports."""
        return {
            "eval_return": float(self.returned.mean()),
            "eval_score": float(self.score.mean()),
            "success_rate": float((self.cause == self.won).mean()),
        }


class Position(NamedTuple):
    """A position of a game that is being watched."""

    draw: Callable[[], np.ndarray | str | None]
    """Renders the position: pixels [H, W, 3] or text. Valid only until the next position."""
    score: float
    steps: int
    cause: str | None
    """How the game ended, if it has ended."""


def training_seeds(seed: int, num_envs: int, dtype: type[SeedType] = np.uint64) -> list[int]:
    """Return one seed per training game."""
    return np.random.SeedSequence([seed, TRAINING]).generate_state(num_envs, dtype).tolist()


def held_out_seeds(episodes: int, dtype: type[SeedType] = np.uint64, *, choosing: bool = False) -> list[int]:
    """Return the seeds of evaluation games: the same in every run, so that scores are comparable.

    `choosing` returns those of evaluations during training, which choose the best checkpoint.
    """
    word = CHOOSING if choosing else HELD_OUT
    return np.random.SeedSequence([word]).generate_state(episodes, dtype).tolist()


class FrameStacks:
    """The last frames of N environments, oldest first: uint8 [N, stack, S, S]. Features, [N, F], are not stacked."""

    def __init__(self, seen: np.ndarray, stack: int) -> None:
        self._stacked = seen.ndim == 3
        self.seen = np.repeat(seen[:, None], stack, axis=1) if self._stacked else seen

    def push(self, seen: np.ndarray, begun: np.ndarray | None = None) -> None:
        """Add the newest observation, [N, ...]. Where an episode has started, [N] bool, it fills the whole stack."""
        if not self._stacked:
            self.seen = seen
            return
        stacks = np.empty_like(self.seen)
        stacks[:, :-1], stacks[:, -1] = self.seen[:, 1:], seen
        if begun is not None:
            stacks[begun] = seen[begun, None]
        self.seen = stacks


def as_text(draw: Callable[[], np.ndarray | None]) -> Callable[[], str]:
    """Return a function that renders as text: two pixels per character, one above the other."""

    def text() -> str:
        from PIL import Image

        drawn = draw()
        assert drawn is not None
        picture = Image.fromarray(drawn)
        height = TEXT_WIDTH * picture.height // picture.width // 2 * 2
        pixels = np.asarray(picture.resize((TEXT_WIDTH, height), Image.Resampling.BOX))
        lines = []
        for above, below in zip(pixels[::2], pixels[1::2], strict=True):
            cells = [
                f"\x1b[38;2;{a};{b};{c}m\x1b[48;2;{d};{e};{g}m▀"
                for (a, b, c), (d, e, g) in zip(above, below, strict=True)
            ]
            lines.append("".join(cells) + "\x1b[0m")
        return "\n".join(lines)

    return text
