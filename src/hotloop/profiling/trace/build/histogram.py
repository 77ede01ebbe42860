"""Durations in buckets, eight an octave: percentiles to 5 % from a fixed number of integers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BUCKETS_PER_OCTAVE = 8
FIRST_OCTAVE = 5
BUCKETS = BUCKETS_PER_OCTAVE * 40
"""From 32 ns to ten hours; what is shorter or longer is in the first or last bucket."""


def bucket_of(duration_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bucket of each duration."""
    octave = np.log2(np.maximum(duration_ns, 1)) - FIRST_OCTAVE
    return np.clip((octave * BUCKETS_PER_OCTAVE).astype(np.int64), 0, BUCKETS - 1)


def percentile_ns(buckets: list[int], counts: list[int], share: float) -> int:
    """Return the duration below which a share of the calls lies: the geometric middle of its bucket."""
    total = sum(counts)
    if not total:
        return 0
    reached = 0
    for bucket, n in zip(buckets, counts, strict=True):
        reached += n
        if reached >= share * total:
            return round(2 ** (FIRST_OCTAVE + (bucket + 0.5) / BUCKETS_PER_OCTAVE))
    return round(2 ** (FIRST_OCTAVE + (buckets[-1] + 0.5) / BUCKETS_PER_OCTAVE))
