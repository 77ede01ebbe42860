"""Percentiles from buckets are right to a few per cent, over all lengths that occur."""

from __future__ import annotations

import numpy as np
import pytest

from hotloop.profiling.trace.build.histogram import BUCKETS, bucket_of, percentile_ns


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("middle", [1e3, 1e6, 1e9])
def test_percentiles_are_right_to_five_per_cent(seed, middle):
    durations = (np.random.default_rng(seed).lognormal(0, 1, 20_000) * middle).astype(np.int64)
    buckets, counts = np.unique(bucket_of(durations), return_counts=True)
    for share in (0.05, 0.5, 0.95, 0.99):
        found = percentile_ns(buckets.tolist(), counts.tolist(), share)
        assert found == pytest.approx(np.quantile(durations, share), rel=0.06)


def test_buckets_grow_with_the_duration_and_have_ends():
    lengths = np.array([0, 1, 31, 32, 33, 10**3, 10**6, 10**9, 10**13, 10**18])
    buckets = bucket_of(lengths)
    assert (np.diff(buckets) >= 0).all()
    assert (buckets[0], buckets[-1]) == (0, BUCKETS - 1)


def test_each_duration_is_within_its_bucket():
    lengths = np.arange(64, 100_000, 37)
    middles = np.array([percentile_ns([b], [1], 0.5) for b in bucket_of(lengths).tolist()])
    assert (np.abs(middles / lengths - 1) < 0.05).all()


def test_no_calls_have_no_percentile():
    assert percentile_ns([], [], 0.5) == 0
