"""A loop beside a helper thread, which computes in Python, and so competes for the lock, and in NumPy."""

from __future__ import annotations

import random
import sys
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from loop_clock import Clock

clock = Clock(__file__)


class Market:
    """Prices that wander."""

    def reset(self) -> np.ndarray:
        self.rng, self.prices = np.random.default_rng(1), np.ones(32)
        return self.prices

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.prices *= 1 + 0.01 * self.rng.standard_normal(32)
        self.prices /= self.prices.mean()
        return self.prices, float(self.prices[action]), False, False, {}


def prefetch(seed: int) -> float:
    """Prepare a batch in Python, holding the lock most of the time."""
    rng = random.Random(seed)
    rows = [rng.random() * rng.random() for _ in range(30_000)]
    return sum(rows) / len(rows)


def evaluate(weights: np.ndarray) -> float:
    """Evaluate in NumPy, without the lock."""
    return float(np.trace(weights @ weights @ weights))


def main(seconds: float) -> None:
    env = Market()
    env.reset()
    weights = np.random.default_rng(2).standard_normal((220, 220))
    with ThreadPoolExecutor(1) as pool:
        batch: Future[float] = pool.submit(prefetch, 0)
        for step in clock.steps(seconds):
            _, reward, *_ = env.step(step % 32)
            with clock.part("python beside python"):
                total = 0.0
                for i in range(40_000):
                    total += i * reward
            with clock.part("wait for batch", own=False):
                mean = batch.result()
            score = pool.submit(evaluate, weights)
            with clock.part("python beside numpy"):
                for i in range(20_000):
                    total -= i * reward
            with clock.part("wait for score", own=False):
                weights[0, 0] += 1e-9 * score.result()
            batch = pool.submit(prefetch, step)
            with clock.part("numpy beside python"):
                weights = np.tanh(weights) + mean * np.sort(weights, axis=0) * 1e-3


if __name__ == "__main__":
    main(float(sys.argv[1]))
    clock.report()
