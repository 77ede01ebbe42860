"""What the games of the pipelines have in common: episodes that were played, a moment that is watched, seeds.

A game is a module of this package with `PLACE`, `LIMIT`, `REMEMBERS`, `home`, `places`, `play_episodes` and `watch`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Act = Callable[[np.ndarray], np.ndarray]
"""Observations [N, ...] to actions [N, ...]."""

HELD_OUT = 0x5EED
"""Enters the seeds of evaluation games and of no training game, so that the two have nothing in common."""
CHOOSING = 0xBE57
"""Enters the seeds of evaluations during training. They choose the best checkpoint, which would look better than it is
on the games that it was chosen by."""
TRAINING = 0x7EAC


@dataclass(frozen=True, slots=True)
class Played:
    """Episodes that were played to their end, [E] each."""

    score: np.ndarray
    """What the game counts: food eaten in Snake, in CarRacing the return."""
    returned: np.ndarray
    """Sum of rewards."""
    length: np.ndarray
    """Steps."""
    cause: np.ndarray
    """How each ended, as a word."""
    won: str
    """The word for an episode that was won."""
    gap: np.ndarray | None = None
    """Steps more than needed, in the episodes that were won, where that is known."""

    def summary(self) -> dict[str, float | None]:
        """Return what a training run reports of an evaluation."""
        return {
            "eval_return": float(self.returned.mean()),
            "eval_score": float(self.score.mean()),
            "success_rate": float((self.cause == self.won).mean()),
        }


class Position(NamedTuple):
    """A moment of a game that is watched."""

    draw: Callable[[], Any]
    """Returns the picture: pixels [H, W, 3] or text. Only until the next position."""
    score: float
    steps: int
    cause: str | None
    """How the game ended, if it has."""


def training_seeds(seed: int, num_envs: int, dtype: Any = np.uint64) -> list[int]:
    """Return the seeds of the training games, one each."""
    return np.random.SeedSequence([seed, TRAINING]).generate_state(num_envs, dtype).tolist()


def held_out_seeds(episodes: int, dtype: Any = np.uint64, *, choosing: bool = False) -> list[int]:
    """Return the seeds of evaluation games: the same for every run, so that scores can be compared.

    Args:
        episodes: How many.
        dtype: Of the seeds.
        choosing: Those of evaluations during training, by which the best checkpoint is chosen.
    """
    word = CHOOSING if choosing else HELD_OUT
    return np.random.SeedSequence([word]).generate_state(episodes, dtype).tolist()
