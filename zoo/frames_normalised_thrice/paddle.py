"""A ball and a paddle on an 84 x 84 grey screen: catch the ball.

Costs a few microseconds a step, like a fast emulator.
"""

import numpy as np

SIZE = 84


class PaddleEnv:
    """Actions: 0 stay, 1 left, 2 right. Reward 1 for a catch, -1 for a miss; ten balls an episode."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)

    def reset(self) -> np.ndarray:
        """Start an episode and return its first frame, [84, 84] uint8."""
        self.paddle = SIZE // 2
        self.balls = 0
        self._serve()
        return self._frame()

    def _serve(self) -> None:
        self.x, self.y = int(self.rng.integers(4, SIZE - 4)), 2
        self.dx = int(self.rng.integers(-2, 3))

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        """Move the paddle and the ball."""
        self.paddle = min(max(self.paddle + (0, -3, 3)[action], 8), SIZE - 8)
        self.x += self.dx
        self.y += 3
        if not 3 < self.x < SIZE - 3:
            self.dx = -self.dx
            self.x = min(max(self.x, 3), SIZE - 3)
        reward = 0.0
        if self.y >= SIZE - 6:
            reward = 1.0 if abs(self.x - self.paddle) <= 8 else -1.0
            self.balls += 1
            self._serve()
        return self._frame(), reward, self.balls >= 10

    def _frame(self) -> np.ndarray:
        frame = np.zeros((SIZE, SIZE), np.uint8)
        frame[self.y - 2 : self.y + 2, self.x - 2 : self.x + 2] = 255
        frame[SIZE - 4 :, self.paddle - 8 : self.paddle + 8] = 160
        return frame
