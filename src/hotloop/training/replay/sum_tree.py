"""A sum tree: draws leaves in proportion to their priorities, many at a time.

Nodes have eight children, which are one cache line: a tree of a million leaves is then seven levels high instead of
twenty, and its inner nodes add a seventh to the leaves. An inner node is always computed anew from its children, never
corrected by a difference, so the root is the sum of the leaves however long the run, and a tree that is rebuilt from
its leaves is the same to the last bit. The smallest priority, which bounds the importance weights, is kept likewise.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from hotloop.training.replay.kernels import U64, random_unit
from hotloop.training.shared_memory import Field, allocate

FAN = 8
SHIFT = 3


def level_offsets(leaves: int) -> np.ndarray:
    """Return where each level begins in one flat array, leaves first, root last; each filled up to whole nodes."""
    offsets, width = [0], leaves
    while True:
        width = -(-width // FAN)
        offsets.append(offsets[-1] + width * FAN)
        if width == 1:
            return np.array([*offsets, offsets[-1] + 1], np.int64)


@njit(cache=True, nogil=True)
def refresh(sums, mins, offsets, changed) -> None:
    """Bring the inner nodes up to date after the leaves `changed` [B] were written.

    Args:
        sums: All levels, float64 [nodes].
        mins: The smallest leaf above 0 below each inner node, float64 [nodes - leaves].
        offsets: Where each level begins in `sums`, int64 [levels + 1].
        changed: Leaves, int64 [B].
    """
    inner = U64(offsets[1])
    for level in range(1, offsets.shape[0] - 1):
        below, here = U64(offsets[level - 1]), U64(offsets[level])
        width = (offsets[level] - offsets[level - 1]) >> SHIFT
        every = width <= changed.shape[0]
        for i in range(width if every else changed.shape[0]):
            node = U64(i) if every else U64(changed[i] >> (SHIFT * level))
            first = below + (node << U64(SHIFT))
            total, rest, least = 0.0, 0.0, math.inf
            for k in range(0, FAN, 2):
                total += sums[first + U64(k)]
                rest += sums[first + U64(k + 1)]
            for k in range(FAN):
                value = sums[first + U64(k)] if level == 1 else mins[first - inner + U64(k)]
                value = value if value > 0.0 else math.inf
                least = value if value < least else least
            sums[here + node] = total + rest
            mins[here - inner + node] = least


@njit(cache=True, nogil=True)
def find_leaves(sums, offsets, seed: int, leaves) -> None:
    """Draw leaves [B] in proportion to their priorities: one from each of B equal parts of the sum, in random order."""
    batch = leaves.shape[0]
    top = offsets.shape[0] - 2
    rest = np.empty(batch)
    for i in range(batch):
        rest[i] = (i + random_unit(seed, i)) / batch * sums[offsets[top]]
        leaves[i] = 0
    # All descend by one level, then by the next: the processor works on many at once, and waits for memory once.
    for level in range(top - 1, -1, -1):
        for i in range(batch):
            first = U64(offsets[level] + (leaves[i] << SHIFT))
            # Adding up all children without a branch is quicker than stopping at the right one.
            goal, end, before, child = rest[i], 0.0, 0.0, 0
            for k in range(FAN):
                end += sums[first + U64(k)]
                child += end <= goal
                before = end if end <= goal else before
            if child == FAN:
                # Rounding carried it past the end: take the last child that has any share, in its middle.
                child = FAN - 1
                while child > 0 and sums[first + U64(child)] == 0.0:
                    child -= 1
                before = goal - 0.5 * sums[first + U64(child)]
            rest[i] = goal - before
            leaves[i] = (leaves[i] << SHIFT) + child
    for i in range(batch - 1, 0, -1):
        j = int(random_unit(seed, batch + i) * (i + 1))
        leaves[i], leaves[j] = leaves[j], leaves[i]


class SumTree:
    """Priorities of a fixed number of leaves, all 0 at first."""

    def __init__(self, leaves: int) -> None:
        self.offsets = level_offsets(leaves)
        nodes, inner = int(self.offsets[-1]), int(self.offsets[-1] - self.offsets[1])
        # A block begins at a page, so that the children of a node never lie in a second cache line.
        real = np.dtype(np.float64)
        arrays = allocate((Field("sums", (nodes,), real), Field("mins", (inner,), real))).arrays
        self.sums, self.mins = arrays["sums"], arrays["mins"]
        self.mins[:] = np.inf
        self.leaves = self.sums[:leaves]

    @property
    def nbytes(self) -> int:
        """Its size."""
        return self.sums.nbytes + self.mins.nbytes

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        return float(self.sums[-1])

    @property
    def least(self) -> float:
        """The smallest priority above 0; infinity if there is none."""
        return float(self.mins[-1])

    def set(self, leaves: np.ndarray, priorities: np.ndarray) -> None:
        """Set the priorities [B] of leaves [B]; of a leaf that is there twice, the last counts."""
        self.leaves[leaves] = priorities
        self.refresh(leaves)

    def refresh(self, changed: np.ndarray) -> None:
        """Bring the sums up to date after `leaves` was written at `changed` [B]."""
        refresh(self.sums, self.mins, self.offsets, changed)

    def sample(self, batch: int, seed: int) -> np.ndarray:
        """Draw leaves, int64 [B]."""
        leaves = np.empty(batch, np.int64)
        find_leaves(self.sums, self.offsets, seed, leaves)
        return leaves

    def rebuild(self) -> None:
        """Compute every inner node from the leaves."""
        self.refresh(np.arange(0, len(self.leaves), FAN))
