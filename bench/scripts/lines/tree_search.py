"""A player that searches deep: recursion far beyond the depth of usual stacks, with the work at its end."""

from __future__ import annotations

import random
import sys

from loop_clock import Clock

clock = Clock(__file__)
DEPTH = 150
sys.setrecursionlimit(5_000)


class Nim:
    """Take one to three; who takes the last one wins."""

    def reset(self) -> int:
        self.left = DEPTH
        return self.left

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        self.left -= action
        return self.left, float(self.left <= 0), self.left <= 0, False, {}


class Player:
    """Chooses by long random lines of play, and by a shallow full search."""

    def __init__(self) -> None:
        self.rng = random.Random(1)

    def line_of_play(self, left: int) -> float:
        def follow(left: int, sign: float) -> float:
            if left <= 0:
                return sum(sign / (i + 1) for i in range(900))
            return -follow(left - 1, -sign)

        return sum(follow(left, 1.0) for _ in range(4))

    def full_search(self, left: int) -> float:
        def best(left: int, depth: int) -> float:
            if depth == 0 or left <= 0:
                return self.rng.random()
            return max(-best(left - take, depth - 1) for take in (1, 2, 3))

        return best(left, 6)


def shallow(values: list[float]) -> float:
    total = 0.0
    for value in values:
        total += value * value
    return total


def main(seconds: float) -> None:
    env, player = Nim(), Player()
    values = [0.5] * 15_000
    left = env.reset()
    for _ in clock.steps(seconds):
        with clock.part("line of play", function="Player.line_of_play"):
            far = player.line_of_play(DEPTH)
        with clock.part("full search", function="Player.full_search"):
            near = player.full_search(left)
        with clock.part("shallow", function="shallow"):
            score = shallow(values)
        left, _, ended, *_ = env.step(1 + int(far + near + score) % 3)
        left = env.reset() if ended else left


if __name__ == "__main__":
    main(float(sys.argv[1]))
    clock.report()
