"""A flow field around a shape that the agent bends: a step relaxes the field, which takes about two milliseconds."""

import gymnasium as gym
import numpy as np

SIZE, SWEEPS, POINTS = 64, 60, 8


class FlowEnv(gym.Env):
    """The agent moves the points of an outline; the reward is a smaller drag."""

    def __init__(self):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2 * POINTS,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (POINTS,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.outline = 8 + self.np_random.random(POINTS) * 4
        self.field = np.tile(np.linspace(0.0, 1.0, SIZE), (SIZE, 1))
        self.steps = 0
        return self._outlook(), {}

    def _outlook(self):
        row = self.field[SIZE // 2 :: SIZE // (2 * POINTS), SIZE // 3][:POINTS]
        return np.concatenate((self.outline / 16, row)).astype(np.float32)

    def step(self, action):
        self.outline = np.clip(self.outline + 0.5 * action, 2.0, 20.0)
        columns = np.interp(np.arange(SIZE), np.linspace(16, 48, POINTS), self.outline)
        wall = np.abs(np.arange(SIZE)[:, None] - SIZE // 2) < columns[None, :] / 2
        wall[:, :16] = wall[:, 48:] = False
        f = self.field
        for _ in range(SWEEPS):
            f[1:-1, 1:-1] = 0.25 * (f[:-2, 1:-1] + f[2:, 1:-1] + f[1:-1, :-2] + f[1:-1, 2:])
            f[wall] = 0.0
        self.steps += 1
        drag = float(np.square(f[:, 49] - f[:, 15]).sum())
        return self._outlook(), -drag, False, self.steps >= 100, {}
