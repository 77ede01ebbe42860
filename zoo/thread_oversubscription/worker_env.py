"""A point that walks in a field of hills; every step simulates the field for some hundred microseconds."""

import gymnasium as gym
import numpy as np


class BusyEnv(gym.Env):
    """Actions: four directions. Reward: height gained. The observation is what lies around the point."""

    features = 128

    def __init__(self):
        self.action_space = gym.spaces.Discrete(4)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (self.features,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.field = self.np_random.standard_normal((64, 64)).astype(np.float32)
        self.y, self.x, self.steps = 32, 32, 0
        return self._observe(), {}

    def _observe(self):
        rows = np.arange(self.y - 4, self.y + 4) % 64
        columns = np.arange(self.x - 8, self.x + 8) % 64
        return self.field[np.ix_(rows, columns)].flatten()

    def step(self, action):
        before = float(self.field[self.y, self.x])
        for _ in range(8):
            around = np.roll(self.field, 1, 0) + np.roll(self.field, -1, 0)
            around += np.roll(self.field, 1, 1) + np.roll(self.field, -1, 1)
            self.field += 0.05 * np.tanh(around - 4 * self.field)
        self.y = (self.y + (0, 1, 0, -1)[action]) % 64
        self.x = (self.x + (1, 0, -1, 0)[action]) % 64
        self.steps += 1
        reward = float(self.field[self.y, self.x]) - before
        return self._observe(), reward, self.steps >= 200, False, {}
