"""Statistics of played episodes: mean with interval, percentiles, histogram; and the comparison of two agents."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hotloop.training.tasks.game import Played

RESAMPLES = 2000
LEVEL = 0.95
BINS = 10
PERCENTILES = (5, 25, 50, 75, 95)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and its 95 % confidence interval."""

    mean: float
    low: float
    high: float


def bootstrap(values: np.ndarray) -> Estimate:
    """Estimate the mean of values [E] by resampling them. The same values always give the same interval."""
    if len(values) < 2:
        return Estimate(float(values.mean()), -np.inf, np.inf)
    rng = np.random.default_rng(0)
    means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(float(values.mean()), float(low), float(high))


def describe(played: Played, place: dict[str, Any]) -> dict[str, Any]:
    """Return what `hotloop evaluate --json` shows for one place, such as {"board": 10}."""
    score = bootstrap(played.score)
    edges = histogram_edges(played.score)
    counts, _ = np.histogram(played.score, edges)
    causes, times = np.unique(played.cause.astype(str), return_counts=True)
    gap = {}
    if played.gap is not None and len(played.gap):
        gap = {"gap_mean": float(played.gap.mean()), "gap_median": float(np.median(played.gap))}
    return {
        **place,
        "episodes": len(played.score),
        "score_mean": score.mean,
        "score_low": _known(score.low),
        "score_high": _known(score.high),
        "score_percentiles": {f"p{p}": float(np.percentile(played.score, p)) for p in PERCENTILES},
        "score_min": played.score.min().item(),
        "score_max": played.score.max().item(),
        "score_histogram": {"edges": edges.tolist(), "counts": counts.tolist()},
        "return_mean": float(played.returned.mean()),
        "steps_mean": float(played.length.mean()),
        "success_rate": float((played.cause == played.won).mean()),
        "causes": dict(zip(causes.tolist(), times.tolist(), strict=True)),
        **gap,
    }


def histogram_edges(score: np.ndarray) -> np.ndarray:
    """Return the integer edges of at most ten bins of equal width that contain all scores."""
    low, high = math.floor(score.min()), math.floor(score.max())
    width = -(-(high - low + 1) // BINS)
    return np.arange(low, high + width + 1, width)


def compare(ours: Played, theirs: Played, place: dict[str, Any]) -> dict[str, Any]:
    """Return how much higher our score is than theirs: the mean of the differences in the same games."""
    gain = bootstrap(ours.score - theirs.score)
    verdict = "better" if gain.low > 0 else "worse" if gain.high < 0 else "inconclusive"
    return {**place, "difference": gain.mean, "low": _known(gain.low), "high": _known(gain.high), "verdict": verdict}


def _known(bound: float) -> float | None:
    """Return a bound as JSON can hold it. A single game has no interval."""
    return bound if math.isfinite(bound) else None
