"""Exploration that keeps what it saw in lists: calls, operators and tests that hold the interpreter's lock."""

from __future__ import annotations

import random
import sys

from loop_clock import Clock

clock = Clock(__file__)
SIZE = 80
MODULUS = 2**2203 - 1


class Maze:
    """A walk on a torus."""

    def reset(self) -> tuple[int, int]:
        self.at = (0, 0)
        return self.at

    def step(self, action: int) -> tuple[tuple[int, int], float, bool, bool, dict]:
        x, y = self.at
        dx, dy = ((0, 1), (1, 0), (0, -1), (-1, 0))[action]
        self.at = ((x + dx) % SIZE, (y + dy) % SIZE)
        return self.at, 0.0, False, False, {}


def main(seconds: float) -> None:
    rng = random.Random(1)
    env = Maze()
    state = env.reset()
    visited = [(x, y) for x in range(SIZE) for y in range(SIZE)]
    rng.shuffle(visited)
    values = [rng.random() for _ in range(6_000)]
    history, bits = list(range(60_000)), rng.getrandbits(2200)
    for step in clock.steps(seconds):
        with clock.part("in list"):
            known = state in visited or (state[1], -1) in visited
        with clock.part("list.count"):
            times = visited.count(state)
        with clock.part("sorted"):
            order = sorted(values)
        with clock.part("list =="):
            same = history == [*history[:-1], step]
        with clock.part("list +"):
            longer = history + visited + values
        with clock.part("big int **"):
            key = (bits | step) ** 12 % MODULUS
        with clock.part("str"):
            text = str(visited[:1500])
        with clock.part("sum"):
            total = sum(values) + max(values) + min(values)
        state, *_ = env.step(rng.randrange(4) if known else times)
        if not order or not longer or same or not key or not text or total < 0:
            raise RuntimeError("cannot be")


if __name__ == "__main__":
    main(float(sys.argv[1]))
    clock.report()
