"""The share of recent boards that were solved, counted in the order in which they started. It decides on promotion.

Solved episodes are short, unsolved ones run to the limit. If episodes were counted as they end, the first to end after
a common start would all be solved, and any agent would look perfect for a while. So an episode counts only once every
episode that started with it must have ended.
"""

from __future__ import annotations

import numpy as np

from hotloop.training.state_checks import MOST, array_of

RECENT = 100
"""Number of boards that count; a few more if several started at once."""


class Solved:
    """Follows the episodes of N boards that are played in parallel, of at most `longest` steps."""

    def __init__(self, boards: int, longest: int) -> None:
        self._longest = longest
        self._step = 0
        self._begun = np.zeros(boards, np.int64)
        """[N]: the step after which the board's episode started."""
        # A ring with a row per step: of the episodes that started after it, how many have ended and how many were
        # solved. Each board starts one in every `longest` steps, so this many rows hold 100 finished episodes.
        self._rows = np.zeros((longest * (-(-RECENT // boards) + 2), 2), np.int64)

    def step(self, ended: np.ndarray, solved: np.ndarray) -> None:
        """Add a vector step: [N] bool each; `solved` is read where an episode ended."""
        self._step += 1
        at = np.flatnonzero(ended)
        row = self._begun[at] % len(self._rows)
        np.add.at(self._rows[:, 0], row, 1)
        np.add.at(self._rows[:, 1], row, solved[at].astype(np.int64))
        self._rows[self._step % len(self._rows)] = 0
        self._begun[at] = self._step

    def share(self) -> float | None:
        """Return the share of the last 100 boards that were solved; None before there are 100."""
        newest = self._step - self._longest
        settled = (newest - np.arange(len(self._rows) - self._longest)) % len(self._rows)
        ended, solved = self._rows[settled].cumsum(0).T
        enough = int(np.searchsorted(ended, RECENT))
        return None if enough == len(ended) else float(solved[enough] / ended[enough])

    def state(self) -> dict[str, np.ndarray]:
        """Return the state for a checkpoint."""
        return {"begun": self._begun.copy(), "rows": self._rows.copy(), "step": np.array(self._step)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Continue from a checkpoint."""
        own = self.state()
        found = {name: array_of(state, name, array, low=0, high=MOST).copy() for name, array in own.items()}
        self._begun, self._rows, self._step = found["begun"], found["rows"], int(found["step"])
