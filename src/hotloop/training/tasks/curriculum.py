"""How many of the last boards were solved, counted in the order in which they began: by that boards get harder.

An episode that solves its board is short, the others last to the limit. Where all begin together, those that end first
are the solved ones, and counted as they end any player would look perfect for a while. So an episode counts only when
every other that began with it must have ended too.
"""

from __future__ import annotations

import numpy as np

from hotloop.training.state_checks import MOST, array_of

RECENT = 100
"""Boards that are looked back on; a few more where several began at once."""


class Solved:
    """Follows the episodes of N boards that are played side by side.

    Args:
        boards: N.
        longest: Steps after which an episode is truncated at the latest.
    """

    def __init__(self, boards: int, longest: int) -> None:
        self._longest = longest
        self._step = 0
        self._begun = np.zeros(boards, np.int64)
        """[N]: the step after which the board's episode began."""
        # A ring: how many episodes that began after a step have ended, and how many of them solved their board. Each
        # board begins one in `longest` steps at least, so in so many rows there are 100 that have all ended.
        self._rows = np.zeros((longest * (-(-RECENT // boards) + 2), 2), np.int64)

    def step(self, ended: np.ndarray, solved: np.ndarray) -> None:
        """Take in a vector step: [N] bool each; `solved` is read where an episode ended."""
        self._step += 1
        at = np.flatnonzero(ended)
        row = self._begun[at] % len(self._rows)
        np.add.at(self._rows[:, 0], row, 1)
        np.add.at(self._rows[:, 1], row, solved[at].astype(np.int64))
        self._rows[self._step % len(self._rows)] = 0
        self._begun[at] = self._step

    def share(self) -> float | None:
        """Return which share of the last 100 boards was solved; None before there are as many."""
        newest = self._step - self._longest
        settled = (newest - np.arange(len(self._rows) - self._longest)) % len(self._rows)
        ended, solved = self._rows[settled].cumsum(0).T
        enough = int(np.searchsorted(ended, RECENT))
        return None if enough == len(ended) else float(solved[enough] / ended[enough])

    def state(self) -> dict[str, np.ndarray]:
        """Return everything, for a checkpoint."""
        return {"begun": self._begun.copy(), "rows": self._rows.copy(), "step": np.array(self._step)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a checkpoint."""
        own = self.state()
        found = {name: array_of(state, name, array, low=0, high=MOST).copy() for name, array in own.items()}
        self._begun, self._rows, self._step = found["begun"], found["rows"], int(found["step"])
