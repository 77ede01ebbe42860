"""A tiny top-down car on an endless winding road, seen as 96 x 96 grey frames.

Stands in for a car-racing game whose physics and drawing cost almost nothing.
"""

import numpy as np

SIZE = 96


class CarEnv:
    """Steer to stay on the road: action [steer, accelerate], reward for progress on the road."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        length = 4096
        y = np.arange(length)
        self.centre = 144 + 40 * np.sin(y / 60.0) + 20 * np.sin(y / 23.0)
        x = np.arange(288)
        grass = self.rng.integers(70, 110, (length, 288))
        road = np.abs(x[None, :] - self.centre[:, None]) < 12
        self.map = np.where(road, 200, grass).astype(np.uint8)

    def reset(self) -> np.ndarray:
        """Start somewhere on the road and return the first frame, [96, 96] uint8."""
        self.y = float(self.rng.integers(0, 1000))
        self.x = float(self.centre[int(self.y)])
        self.speed = 2.0
        self.steps = 0
        return self._frame()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        """Drive one frame."""
        self.speed = float(np.clip(self.speed + 0.2 * action[1], 1.0, 4.0))
        self.x = float(np.clip(self.x + 3.0 * action[0], 48, 239))
        self.y += self.speed
        self.steps += 1
        off_road = abs(self.x - self.centre[int(self.y)]) > 24
        done = bool(off_road or self.steps >= 500)
        return self._frame(), self.speed - 10.0 * off_road, done

    def random_action(self) -> np.ndarray:
        """An action drawn evenly, [2] float32."""
        return self.rng.uniform(-1, 1, 2).astype(np.float32)

    def _frame(self) -> np.ndarray:
        top, left = int(self.y), int(self.x) - SIZE // 2
        return self.map[top : top + SIZE, left : left + SIZE].copy()
