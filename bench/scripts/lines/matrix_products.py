"""A world model of matrix products in NumPy and in torch, which give the interpreter's lock away or need not."""

from __future__ import annotations

import sys

import numpy as np
import torch
from loop_clock import Clock

clock = Clock(__file__)


class LinearWorld:
    """Dynamics of many copies of a linear system, one matrix product each step."""

    def __init__(self, copies: int) -> None:
        self.dynamics = np.eye(64, dtype=np.float32) * 0.99
        self.state = np.zeros((copies, 64), np.float32)

    def reset(self) -> np.ndarray:
        self.state[:] = 1
        return self.state

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.state = self.state @ self.dynamics + action
        return self.state, 0.0, False, False, {}


def main(seconds: float) -> None:
    env = LinearWorld(256)
    obs = env.reset()
    rng = np.random.default_rng(1)
    wide, tall = rng.standard_normal((64, 300)), rng.standard_normal((300, 400))
    weights = torch.randn(300, 1200)
    for _ in clock.steps(seconds):
        with clock.part("numpy @"):
            hidden = obs @ wide
        with clock.part("np.dot"):
            out = np.dot(hidden, tall)
        with clock.part("numpy operators"):
            out = np.tanh(out * 0.01) + out * 0.5 - out / 3
        with clock.part("torch @"):
            features = torch.from_numpy(hidden).float() @ weights
        with clock.part("torch.svd"):
            _, spread, _ = torch.linalg.svd(features[:, :50])
        with clock.part("torch operators"):
            scaled = torch.relu(features) * 0.1 + features.sigmoid()
        with clock.part("standard_normal"):
            noise = rng.standard_normal((256, 256))
        with clock.part("act"):
            action = (0.01 * np.sign(out[:, :64]) + scaled[:, :64].numpy() * noise[:, :64]).astype(np.float32)
            action = np.clip(action / float(spread[0]), -1, 1)
        obs, *_ = env.step(action * 0.01)


if __name__ == "__main__":
    main(float(sys.argv[1]))
    clock.report()
