"""Rules of Ricochet Robots: walls on cell edges, robots that slide until something stops them."""

import numpy as np

SIZE = 16
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left


class Board:
    """Walls, robots and the target of one puzzle."""

    def __init__(self, rng: np.random.Generator, robots: int = 4):
        self.below = rng.random((SIZE, SIZE)) < 0.08  # wall under a cell
        self.right = rng.random((SIZE, SIZE)) < 0.08  # wall to the right of a cell
        cells = rng.choice(SIZE * SIZE, robots + 1, replace=False)
        self.robots = [(int(c) // SIZE, int(c) % SIZE) for c in cells[:robots]]
        self.target = (int(cells[-1]) // SIZE, int(cells[-1]) % SIZE)

    def slide(self, robot: int, direction: int) -> None:
        """Move a robot until a wall, the edge or another robot stops it."""
        y, x = self.robots[robot]
        dy, dx = MOVES[direction]
        while self._open(y, x, direction) and (y + dy, x + dx) not in self.robots:
            y, x = y + dy, x + dx
        self.robots[robot] = (y, x)

    def _open(self, y: int, x: int, direction: int) -> bool:
        if direction == 0:
            return y > 0 and not self.below[y - 1, x]
        if direction == 1:
            return x < SIZE - 1 and not self.right[y, x]
        if direction == 2:
            return y < SIZE - 1 and not self.below[y, x]
        return x > 0 and not self.right[y, x - 1]

    def solved(self) -> bool:
        """True when the first robot stands on the target."""
        return self.robots[0] == self.target
