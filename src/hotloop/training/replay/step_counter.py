"""Counts the steps that arrive in a ring, and those that were overwritten before they were ever sampled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hotloop.training.replay.record_layout import FINAL
from hotloop.training.replay.ring_layout import Ring


class NewSteps(NamedTuple):
    """Changes since the previous count."""

    steps: np.ndarray
    """int64 [lanes]: steps added."""
    overwritten: int
    """Steps overwritten before they were ever sampled."""


class StepCounter:
    """Counts from the heads and records of the lanes alone, so it works with any number of writing processes."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._flags = ring.records["flags"]
        self._counted = np.zeros(ring.shape.lanes, np.int64)
        # Per slot: 1 + the number of the step that was last sampled there. FINAL slots count as sampled.
        self._sampled = np.zeros((ring.shape.lanes, ring.shape.length), np.int64)
        self.reset()

    @property
    def nbytes(self) -> int:
        """Memory used."""
        return self._counted.nbytes + self._sampled.nbytes

    @property
    def heads(self) -> list[int]:
        """Head of each lane at the last count."""
        return self._counted.tolist()

    def reset(self, heads: list[int] | None = None) -> None:
        """Count only what arrives from now on, or what arrived after the lanes had these heads."""
        # Start at the oldest slot still in the ring: whatever left it before was counted by an earlier counter.
        self._counted[:] = np.maximum(0, self._ring.heads - self._ring.shape.length)
        self._sampled[:] = 0
        self.count()
        if heads is not None:
            np.minimum(self._counted, heads, out=self._counted)

    def mark_sampled(self, index: np.ndarray) -> None:
        """Record which steps were sampled: `Batch.index`, int64 [B]."""
        shape = self._ring.shape
        seq, lane = np.divmod(index, shape.lanes)
        self._sampled[lane, seq % shape.length] = seq + 1

    def count(self) -> NewSteps:
        """Count what arrived since the last call.

        Call it before a lane wraps around. In slots that were missed, the last frames of episodes count as steps.
        """
        heads, length = self._ring.heads.copy(), self._ring.shape.length
        steps, overwritten = heads - self._counted, 0
        for lane in np.flatnonzero(steps):
            before, head = int(self._counted[lane]), int(heads[lane])
            evicted = np.arange(max(0, before - length), max(0, head - length))
            overwritten += int(np.count_nonzero(self._sampled[lane, evicted % length] != evicted + 1))
            arrived = np.arange(max(before, head - length), head)
            finals = arrived[(self._flags[lane, arrived % length] & FINAL) != 0]
            self._sampled[lane, finals % length] = finals + 1
            steps[lane] -= len(finals)
        self._counted[:] = heads
        return NewSteps(steps, overwritten)
