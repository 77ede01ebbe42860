"""A replay buffer in NumPy and a linear learner: small array operations, fancy indexing, prioritised sampling."""

from __future__ import annotations

import sys

import numpy as np
from loop_clock import Clock

clock = Clock(__file__)
SLOTS, FEATURES, BATCH = 20_000, 40, 128


class Drift:
    """A vector environment of sixteen drifting points."""

    def reset(self) -> np.ndarray:
        self.rng, self.state = np.random.default_rng(1), np.zeros((16, FEATURES))
        return self.state

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        with clock.part("env.step", own=False):
            self.state = 0.99 * self.state + 0.1 * action[:, None] + self.rng.normal(size=self.state.shape)
            ended = np.abs(self.state).max(1) > 50
            return self.state, self.state.sum(1), ended, np.zeros(16, bool), {}


class Replay:
    """Arrays that are written in a ring."""

    def __init__(self) -> None:
        self.states, self.rewards = np.zeros((SLOTS, FEATURES)), np.zeros(SLOTS)
        self.priorities, self.at = np.full(SLOTS, 1e-3), 0

    def push(self, states: np.ndarray, rewards: np.ndarray) -> None:
        where = (self.at + np.arange(len(states))) % SLOTS
        self.states[where], self.rewards[where], self.priorities[where] = states, rewards, 1.0
        self.at = (self.at + len(states)) % SLOTS

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        heaps = np.cumsum(self.priorities)
        return np.searchsorted(heaps, rng.uniform(0, heaps[-1], BATCH))


def main(seconds: float) -> None:
    env, replay, rng = Drift(), Replay(), np.random.default_rng(2)
    states, weights = env.reset(), np.zeros(FEATURES)
    for _ in clock.steps(seconds):
        states, rewards, *_ = env.step(np.sign(states @ weights))
        with clock.part("push", function="Replay.push", own=False):
            replay.push(states, rewards)
        with clock.part("sample", function="Replay.sample", own=False):
            chosen = replay.sample(rng)
        with clock.part("gather"):
            batch, goal = replay.states[chosen], replay.rewards[chosen]
        with clock.part("learn"):
            error = goal - batch @ weights
            weights = weights + 1e-6 * (batch * error[:, None]).mean(0)
        with clock.part("priorities"):
            replay.priorities[chosen] = np.abs(error) ** 0.6 + 1e-3
        with clock.part("statistics"):
            spread = [float(np.std(column)) for column in batch.T[:10]]
        if min(spread) < 0:
            raise RuntimeError("cannot be")


if __name__ == "__main__":
    main(float(sys.argv[1]))
    clock.report()
