"""A side-scroller with pits on an 84 x 84 grey screen, stacks of four frames.

Stands in for an emulator; a step costs some tens of microseconds.
"""

import numpy as np

SIZE = 84


class RunnerEnv:
    """Actions: 0 walk, 1 run, 2 jump. Reward is progress; a fall into a pit ends the life."""

    actions = 3

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        ground = np.repeat(self.rng.random(256) > 0.15, 8)
        ground[:64] = True
        self.ground = ground
        self.level = np.full((SIZE, len(ground)), 120, np.uint8)
        self.level[70:, ground] = 40
        self.stack = np.zeros((4, SIZE, SIZE), np.uint8)

    def reset(self) -> np.ndarray:
        """Begin a life; returns the stack [4, 84, 84] uint8."""
        self.x, self.height, self.climb = 0, 0, 0
        self.stack[:] = self._frame()
        return self.stack.copy()

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        """Play one frame."""
        speed = 3 if action == 1 else 2
        if action == 2 and self.height == 0:
            self.climb = 6
        self.height = max(0, self.height + self.climb)
        self.climb = self.climb - 1 if self.height else 0
        self.x += speed
        fell = self.height == 0 and not self.ground[self.x + 20]
        done = bool(fell or self.x + SIZE + 4 >= len(self.ground))
        self.stack[:3] = self.stack[1:]
        self.stack[3] = self._frame()
        return self.stack.copy(), speed / 3 - 1.0 * fell, done

    def _frame(self) -> np.ndarray:
        frame = self.level[:, self.x : self.x + SIZE].copy()
        foot = 70 - self.height
        frame[foot - 10 : foot, 18:24] = 230
        return frame
