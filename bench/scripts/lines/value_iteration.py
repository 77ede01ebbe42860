"""Tabular learning in plain Python: loops in methods and nested functions, without any library."""

from __future__ import annotations

import random
import sys

from loop_clock import Clock

clock = Clock(__file__)
SIZE, MOVES = 14, ((0, 1), (1, 0), (0, -1), (-1, 0))


class Grid:
    """A grid with holes and a goal."""

    def __init__(self, rng: random.Random) -> None:
        self.holes = {(rng.randrange(SIZE), rng.randrange(SIZE)) for _ in range(25)}

    def reset(self) -> tuple[int, int]:
        self.at = (0, 0)
        return self.at

    def step(self, action: int) -> tuple[tuple[int, int], float, bool, bool, dict]:
        with clock.part("env.step", own=False):
            for _ in range(20):
                x, y = self.at[0] + MOVES[action][0], self.at[1] + MOVES[action][1]
                self.at = (min(max(x, 0), SIZE - 1), min(max(y, 0), SIZE - 1))
            return self.at, -1.0, self.at in self.holes, False, {}


class Planner:
    """Value iteration."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.values = [[0.0] * SIZE for _ in range(SIZE)]

    def sweep(self) -> None:
        for x in range(SIZE):
            for y in range(SIZE):
                best = -1e9
                for dx, dy in MOVES:
                    i, j = min(max(x + dx, 0), SIZE - 1), min(max(y + dy, 0), SIZE - 1)
                    best = max(best, -100.0 if (i, j) in self.grid.holes else -1 + 0.95 * self.values[i][j])
                self.values[x][y] = best

    def policy(self) -> dict[tuple[int, int], int]:
        def value(x: int, y: int) -> float:
            return self.values[x % SIZE][y % SIZE]

        def best(x: int, y: int) -> int:
            return max(range(4), key=lambda a: value(x + MOVES[a][0], y + MOVES[a][1]))

        return {(x, y): best(x, y) for x in range(SIZE) for y in range(SIZE)}


def main(seconds: float) -> None:
    rng = random.Random(1)
    grid = Grid(rng)
    planner, state, returns = Planner(grid), grid.reset(), [0.0] * 600
    for step in clock.steps(seconds):
        with clock.part("sweep", function="Planner.sweep"):
            planner.sweep()
        with clock.part("policy", function="Planner.policy"):
            policy = planner.policy()
        with clock.part("returns"):
            g = float(step)
            for i in range(len(returns)):
                g = 0.99 * g + i
                returns[i] += g * 1e-9
        state, _, ended, *_ = grid.step(policy[state])
        state = grid.reset() if ended else state


if __name__ == "__main__":
    main(float(sys.argv[1]))
    clock.report()
