"""Batches put together by comprehensions, generators and sorts with a key, as many first versions do."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Iterator

import numpy as np
from loop_clock import Clock

clock = Clock(__file__)
Transition = tuple[list[float], int, float, list[float]]


class Walk:
    """A random walk in eight dimensions."""

    def __init__(self) -> None:
        self.rng = random.Random(1)

    def reset(self) -> list[float]:
        self.state = [0.0] * 8
        return self.state

    def step(self, action: int) -> tuple[list[float], float, bool, bool, dict]:
        self.state = [0.9 * value + self.rng.gauss(0, 1) * action for value in self.state]
        return self.state, sum(self.state), False, False, {}


def mean_return(transitions: list[Transition], gamma: float) -> float:
    """Return the mean of what is yielded for each transition, last first."""

    def discounted() -> Iterator[float]:
        total = 0.0
        for _, _, reward, _ in reversed(transitions):
            total = reward + gamma * total
            yield total

    return sum(each / len(transitions) for each in discounted())


def main(seconds: float) -> None:
    env = Walk()
    state, rng = env.reset(), random.Random(1)
    memory: deque[Transition] = deque(maxlen=5_000)
    for step in clock.steps(seconds):
        action = step % 3
        later, reward, *_ = env.step(action)
        memory.append((state, action, reward, later))
        state = later
        with clock.part("sample"):
            batch = [memory[rng.randrange(len(memory))] for _ in range(200)]
        with clock.part("zip"):
            states, actions, rewards, laters = (list(column) for column in zip(*batch, strict=True))
        with clock.part("scale"):
            scaled = [
                [min(max(value / 10, -1.0), 1.0) for value in each]
                for each in states[:50]
            ]  # fmt: skip
        with clock.part("sort"):
            ranked = sorted(batch, key=lambda each: (each[2], sum(each[3])))
        with clock.part("generator", function="mean_return"):
            value = mean_return(ranked, 0.99)
        with clock.part("histogram"):
            counts = {a: sum(1 for b, r in zip(actions, rewards, strict=True) if a == b and r > 0) for a in range(3)}
        with clock.part("np.array"):
            arrays = np.array(scaled, np.float32), np.array(laters)
        if value != value or len(counts) != 3 or len(arrays[0]) != 50:
            raise RuntimeError("cannot be")


if __name__ == "__main__":
    main(float(sys.argv[1]))
    clock.report()
