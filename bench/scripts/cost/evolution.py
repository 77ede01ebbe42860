"""Evolution strategies for a mountain car that is simulated for the whole population at once, in NumPy."""

import numpy as np
from progress import tick

POPULATION, SIGMA, RATE, HIDDEN, HORIZON = 64, 0.1, 0.05, 8, 100
N_PARAMS = 2 * HIDDEN + HIDDEN


class Cars:
    def __init__(self, n, rng):
        self.n, self.rng = n, rng

    def reset(self):
        self.x = self.rng.uniform(-0.6, -0.4, self.n)
        self.v = np.zeros(self.n)
        return np.stack([self.x, 20 * self.v], axis=1)

    def step(self, force):
        self.v = np.clip(self.v + 0.0015 * np.clip(force, -1, 1) - 0.0025 * np.cos(3 * self.x), -0.07, 0.07)
        self.x = np.clip(self.x + self.v, -1.2, 0.6)
        self.v[(self.x <= -1.2) & (self.v < 0)] = 0.0
        arrived = self.x >= 0.45
        reward = np.where(arrived, 1.0, 0.0) - 0.001 * force**2 + 0.1 * np.abs(self.v)
        return np.stack([self.x, 20 * self.v], axis=1), reward, arrived


def policy(params, obs):
    w1 = params[:, : 2 * HIDDEN].reshape(-1, 2, HIDDEN)
    w2 = params[:, 2 * HIDDEN :]
    hidden = np.tanh(np.einsum("pi,pih->ph", obs, w1))
    return np.tanh((hidden * w2).sum(axis=1))


def evaluate(params, cars):
    obs, score = cars.reset(), np.zeros(cars.n)
    for _ in range(HORIZON):
        obs, reward, _ = cars.step(policy(params, obs))
        score += reward
        tick()
    return score


def main():
    rng = np.random.default_rng(42)
    cars, theta = Cars(POPULATION, rng), 0.1 * rng.standard_normal(N_PARAMS)
    while True:
        half = rng.standard_normal((POPULATION // 2, N_PARAMS))
        noise = np.concatenate([half, -half])
        score = evaluate(theta + SIGMA * noise, cars)
        ranks = np.argsort(np.argsort(score)) / (POPULATION - 1) - 0.5
        theta = 0.999 * theta + RATE / (POPULATION * SIGMA) * (ranks @ noise)


if __name__ == "__main__":
    main()
