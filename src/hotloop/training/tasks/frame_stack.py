"""The last frames of each environment, as a network sees them."""

from __future__ import annotations

import numpy as np


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
