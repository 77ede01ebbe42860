"""Robots in square rooms with a ring of distance sensors, many stepped as one with numpy."""

import numpy as np

BEAMS = 180
MAX_STEPS = 200


class VectorLidar:
    """N robots that see the distance to the walls in each direction; the goal is to stay near the middle."""

    def __init__(self, num_envs: int, seed: int):
        self.num_envs = num_envs
        self.rng = np.random.default_rng(seed)
        angle = np.linspace(0, 2 * np.pi, BEAMS, endpoint=False, dtype=np.float32)
        self.cos, self.sin = np.cos(angle) + np.float32(1e-6), np.sin(angle) + np.float32(1e-6)
        self.turns = np.array([-0.2, 0.0, 0.2], np.float32)
        self.x, self.y = np.zeros(num_envs, np.float32), np.zeros(num_envs, np.float32)
        self.heading, self.age = np.zeros(num_envs, np.float32), np.zeros(num_envs, np.int32)

    def reset(self) -> np.ndarray:
        """Place all robots; returns distances [N, BEAMS]."""
        self._place(np.arange(self.num_envs))
        return self.distances()

    def _place(self, which: np.ndarray) -> None:
        self.x[which], self.y[which] = self.rng.uniform(-0.5, 0.5, (2, len(which)))
        self.heading[which] = self.rng.uniform(0, 2 * np.pi, len(which))
        self.age[which] = 0

    def distances(self) -> np.ndarray:
        """Distance to the nearest wall along each beam."""
        across = (np.sign(self.cos) - self.x[:, None]) / self.cos
        along = (np.sign(self.sin) - self.y[:, None]) / self.sin
        return np.minimum(across, along)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        """Turn left, not or right (actions 0..2), and drive on."""
        self.heading += self.turns[actions]
        self.x += 0.02 * np.cos(self.heading)
        self.y += 0.02 * np.sin(self.heading)
        self.age += 1
        far = np.maximum(np.abs(self.x), np.abs(self.y))
        crashed, late = far >= 1, self.age >= MAX_STEPS
        self._place(np.flatnonzero(crashed | late))
        return self.distances(), (1 - far).astype(np.float32), crashed, late, {}
