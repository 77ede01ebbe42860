"""Augmented random search for a linear controller of a heated plate.

The plate is a 24 x 24 grid; heat spreads with an implicit scheme (one matrix from the left, one from the right,
both prepared once).  All directions of one iteration are tried side by side.
"""
import argparse
import json
import os
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np  # noqa: E402

SIDE, SENSORS, HEATERS = 24, 16, 9


class Plate:
    def __init__(self, copies, conductivity=0.8):
        lap = 2.0 * np.eye(SIDE) - np.eye(SIDE, k=1) - np.eye(SIDE, k=-1)
        lap[0, 0] = lap[-1, -1] = 1.0
        spread = 0.9975 * np.linalg.inv(np.eye(SIDE) + conductivity * lap)
        self.left = spread.astype(np.float32)
        self.right = np.ascontiguousarray(spread.T, dtype=np.float32)
        grid = np.arange(SIDE)
        spots = [(SIDE * (2 * i + 1) // 6, SIDE * (2 * j + 1) // 6) for i in range(3) for j in range(3)]
        blobs = [np.exp(-((grid[:, None] - i) ** 2 + (grid[None] - j) ** 2) / 6.0) for i, j in spots]
        self.blobs = np.ascontiguousarray(np.stack(blobs, axis=1), dtype=np.float32)
        at = np.linspace(3, SIDE - 4, 4).astype(int)
        self.rows, self.cols = np.repeat(at, 4), np.tile(at, 4)
        self.u = np.zeros((SIDE, copies, SIDE), np.float32)  # row, copy, column
        self.work = np.empty_like(self.u)

    def cool_down(self, start, goal):
        self.u[:] = start[:, None]
        self.goal = goal
        self.wanted = goal[self.rows, self.cols][:, None]

    def measure(self):
        return self.u[self.rows, :, self.cols] - self.wanted

    def warm(self, power):
        """power: copies x heaters, returns the cost of every copy"""
        np.matmul(power, self.blobs, out=self.work)
        self.u += self.work
        wide, tall = (SIDE, -1), (-1, SIDE)
        np.matmul(self.left, self.u.reshape(wide), out=self.work.reshape(wide))
        np.matmul(self.work.reshape(tall), self.right, out=self.u.reshape(tall))
        np.subtract(self.u, self.goal[:, None], out=self.work)
        return np.einsum("ikj,ikj->k", self.work, self.work) / SIDE**2 + 0.01 * np.square(power).sum(1)


def smooth_field(rng):
    k = np.arange(SIDE) / SIDE
    a, b, c = rng.uniform(-1, 1, 3)
    return (a * np.sin(np.pi * k)[:, None] + b * np.cos(np.pi * k)[None] + c * np.outer(k, k)).astype(np.float32)


def trial(plate, gains, start, goal, length):
    """gains: copies x heaters x (sensors + 1); returns total cost per copy and the measurements seen"""
    plate.cool_down(start, goal)
    cost = np.zeros(len(gains), np.float32)
    x = np.ones((len(gains), SENSORS + 1, 1), np.float32)
    for _ in range(length):
        x[:, :SENSORS, 0] = plate.measure().T
        power = np.clip((gains @ x)[:, :, 0], -1.0, 1.0)
        cost += plate.warm(power)
    return cost


def search(seconds, seed, n_dirs=32, top=16, nu=0.05, step=0.02, length=40):
    rng = np.random.default_rng(seed)
    plate = Plate(2 * n_dirs)
    M = np.zeros((HEATERS, SENSORS + 1), np.float32)
    seen = rounds = 0
    warm = None
    costs = []
    t0 = time.perf_counter()
    while True:
        delta = rng.standard_normal((n_dirs, *M.shape), dtype=np.float32)
        gains = np.concatenate([M + nu * delta, M - nu * delta])
        cost = trial(plate, gains, smooth_field(rng), smooth_field(rng), length)
        plus, minus = cost[:n_dirs], cost[n_dirs:]
        best = np.argsort(np.minimum(plus, minus))[:top]
        spread = np.concatenate([plus[best], minus[best]]).std() + 1e-8
        M += step / (top * spread) * np.tensordot(minus[best] - plus[best], delta[best], 1)
        costs.append(float(cost.mean()) / length)
        seen += len(cost) * length
        rounds += 1
        if rounds % 50 == 0:
            print("iteration %d, cost per step %.4f" % (rounds, sum(costs[-50:]) / 50))
        now = time.perf_counter()
        if warm is None and now - t0 > 0.5:
            warm = (now, seen)
        if now - t0 > seconds:
            return seen - warm[1], now - warm[0]


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=8.0)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    n, s = search(args.seconds, args.seed)
    print(json.dumps({"env_steps": n, "seconds": round(s, 3), "env_steps_per_s": round(n / s, 1)}))
