"""A sum tree: draws leaves in proportion to their priorities, many at a time.

A node has eight children, one cache line: a tree of a million leaves has seven levels instead of twenty, and the inner
nodes need a seventh of the memory of the leaves. An inner node is always recomputed from its children instead of being
adjusted by a difference. So the root stays the sum of the leaves however long the run, and a tree rebuilt from its
leaves is identical to the last bit. The smallest priority, which bounds the importance weights, is kept the same way.
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
    """Return where each level starts in one flat array, leaves first, root last; levels are padded to whole nodes."""
    offsets, width = [0], leaves
    while True:
        width = -(-width // FAN)
        offsets.append(offsets[-1] + width * FAN)
        if width == 1:
            return np.array([*offsets, offsets[-1] + 1], np.int64)


@njit(cache=True, nogil=True)
def refresh(sums, mins, offsets, changed) -> None:
    """Update the inner nodes after the leaves `changed` [B] were written.

    Args:
        sums: All levels, float64 [nodes].
        mins: Smallest leaf above 0 under each inner node, float64 [nodes - leaves].
        offsets: Start of each level in `sums`, int64 [levels + 1].
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
    """Draw leaves [B] in proportion to priority: one from each of B equal parts of the sum, in random order."""
    batch = leaves.shape[0]
    top = offsets.shape[0] - 2
    rest = np.empty(batch)
    for i in range(batch):
        rest[i] = (i + random_unit(seed, i)) / batch * sums[offsets[top]]
        leaves[i] = 0
    # Level by level for the whole batch, so that the cache misses of a level overlap.
    for level in range(top - 1, -1, -1):
        for i in range(batch):
            first = U64(offsets[level] + (leaves[i] << SHIFT))
            # Summing all children without a branch is faster than stopping at the right one.
            goal, end, before, child = rest[i], 0.0, 0.0, 0
            for k in range(FAN):
                end += sums[first + U64(k)]
                child += end <= goal
                before = end if end <= goal else before
            if child == FAN:
                # Rounding led past the end: take the middle of the last child above 0.
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
    """Priorities of a fixed number of leaves, initially 0."""

    def __init__(self, leaves: int) -> None:
        self.offsets = level_offsets(leaves)
        nodes, inner = int(self.offsets[-1]), int(self.offsets[-1] - self.offsets[1])
        # A block is page-aligned, so the children of a node share one cache line.
        real = np.dtype(np.float64)
        arrays = allocate((Field("sums", (nodes,), real), Field("mins", (inner,), real))).arrays
        self.sums, self.mins = arrays["sums"], arrays["mins"]
        self.mins[:] = np.inf
        self.leaves = self.sums[:leaves]

    @property
    def nbytes(self) -> int:
        """Memory used."""
        return self.sums.nbytes + self.mins.nbytes

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        return float(self.sums[-1])

    @property
    def least(self) -> float:
        """The smallest priority above 0, or infinity."""
        return float(self.mins[-1])

    def refresh(self, changed: np.ndarray) -> None:
        """Update the inner nodes after `self.leaves` was written at `changed` [B]."""
        refresh(self.sums, self.mins, self.offsets, changed)

    def sample(self, batch: int, seed: int) -> np.ndarray:
        """Draw leaves, int64 [B]."""
        leaves = np.empty(batch, np.int64)
        find_leaves(self.sums, self.offsets, seed, leaves)
        return leaves

    def rebuild(self) -> None:
        """Recompute every inner node from the leaves."""
        self.refresh(np.arange(0, len(self.leaves), FAN))
