"""Totals of a run: the four counts, which are never mixed, and the returns of its episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from hotloop.counters import COUNTERS, steps_per_episode
from hotloop.json_types import Json
from hotloop.spans import count
from hotloop.training.state_checks import MOST, array_of, count_in, require_values

RECENT = 100
"""Episodes over which the moving means are taken."""


@dataclass(slots=True)
class Counts:
    """Totals of a run, including the runs it resumes. `hotloop.counters.LOOP` defines them."""

    env_steps: int = 0
    frames: int = 0
    updates: int = 0
    episodes: int = 0

    def add(self, env_steps: int = 0, updates: int = 0, episodes: int = 0, frames: int | None = None) -> None:
        """Add to the counters here and in the recording. By default a step is one frame."""
        frames = env_steps if frames is None else frames
        self.env_steps += env_steps
        self.frames += frames
        self.updates += updates
        self.episodes += episodes
        for name, amount in zip(COUNTERS, (env_steps, frames, updates, episodes), strict=True):
            if amount:
                count(name, amount)

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)

    def as_row(self) -> dict[str, float | None]:
        """Return the counts by name, and `steps_per_episode`."""
        return {**self.as_dict(), "steps_per_episode": steps_per_episode(self.env_steps, self.episodes)}

    def since(self, earlier: Counts) -> Counts:
        """Return what was counted after an earlier copy was made."""
        return Counts(**{name: getattr(self, name) - getattr(earlier, name) for name in COUNTERS})

    @classmethod
    def of(cls, saved: Mapping[str, Json]) -> Counts:
        """Return the counts that `as_dict` put into a checkpoint."""
        return cls(**{name: count_in(saved, name) for name in COUNTERS})


class Episodes:
    """Returns, lengths and scores of the episodes that ended in N environments."""

    def __init__(self, num_envs: int) -> None:
        self._return = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)
        self._recent = np.zeros((3, RECENT))
        self._sums = np.zeros(3)
        self.ended = 0
        """Number of episodes that ended."""
        self._best_score = 0.0

    def step(self, reward: np.ndarray, ended: np.ndarray, score: np.ndarray | None = None) -> int:
        """Add a vector step, [N] each; return how many episodes ended, terminated or truncated.

        A score is read where an episode ended; without scores, the return counts.
        """
        self._return += reward
        self._length += 1
        at = np.flatnonzero(ended)
        if len(at):
            self.take(np.stack([self._return[at], self._length[at], (self._return if score is None else score)[at]]))
            self._return[at] = 0
            self._length[at] = 0
        return len(at)

    def take(self, rows: np.ndarray) -> None:
        """Add episodes that ended: returns, lengths and scores, [3, E], E > 0."""
        ended = rows.shape[1]
        self._sums += rows.sum(1)
        place = (self.ended + np.arange(ended)) % RECENT
        self._recent[:, place[-RECENT:]] = rows[:, -RECENT:]
        self.ended += ended
        self._best_score = max(self._best_score, float(rows[2].max()))

    def means(self) -> dict[str, float | None]:
        """Return the means over all episodes and over the last 100; None before the first one ends."""
        means: dict[str, float | None] = {"score_best": self._best_score if self.ended else None}
        everything = self._sums / max(self.ended, 1)
        recent = self._recent[:, : max(1, min(self.ended, RECENT))].mean(1)
        for k, name in enumerate(("return", "length", "score")):
            means[f"{name}_mean"] = float(everything[k]) if self.ended else None
            means[f"{name}_last100"] = float(recent[k]) if self.ended else None
        return means

    def drop_unfinished(self) -> None:
        """Discard unfinished episodes, because new ones begin."""
        self._return[:] = 0
        self._length[:] = 0

    def state(self) -> dict[str, np.ndarray]:
        """Return the state for a checkpoint."""
        return {
            "return": self._return.copy(),
            "length": self._length.copy(),
            "recent": self._recent.copy(),
            "sums": self._sums.copy(),
            "ended": np.array(self.ended),
            "best_score": np.array(self._best_score),
        }

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from a checkpoint."""
        found = {name: array_of(state, name, array).copy() for name, array in self.state().items()}
        for name in ("length", "ended"):
            require_values(found[name], name, low=0, high=MOST)
        self._return, self._length = found["return"], found["length"]
        self._recent, self._sums = found["recent"], found["sums"]
        self.ended, self._best_score = int(found["ended"]), float(found["best_score"])
