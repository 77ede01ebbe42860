"""LinUCB for picking news articles; users and articles are simulated."""
import argparse
import json
import time

import numpy as np


class NewsSite:
    """Visitors come one by one, each is shown one article and clicks or does not."""

    def __init__(self, n_articles, n_features, rng):
        self.rng = rng
        self.taste = rng.normal(size=(n_articles, n_features)) / np.sqrt(n_features)
        self.segments = rng.normal(size=(30, n_features))

    def visitor(self):
        seg = self.segments[self.rng.integers(len(self.segments))]
        x = seg + 0.5 * self.rng.normal(size=seg.shape)
        return x / np.linalg.norm(x)

    def click_rates(self, x):
        return 1.0 / (1.0 + np.exp(-(6.0 * self.taste @ x - 1.0)))

    def show(self, x, k):
        p = self.click_rates(x)
        return float(self.rng.random() < p[k]), float(p.max() - p[k])


class LinUCB:
    """Disjoint linear models (Li et al. 2010, algorithm 1)."""

    def __init__(self, K, d, alpha):
        self.K, self.d, self.alpha = K, d, alpha
        self.A = np.stack([np.eye(d) for _ in range(K)])
        self.A_inv = self.A.copy()
        self.b = np.zeros((K, d))
        self.pulls = np.zeros(K, dtype=int)

    def ucb(self, x):
        A_inv = self.A_inv
        theta = (A_inv @ self.b[:, :, None])[:, :, 0]
        width = np.sqrt(((A_inv @ x) * x).sum(axis=1))
        return theta @ x + self.alpha * width

    def select(self, x):
        return int(self.ucb(x).argmax())

    def update(self, x, k, r):
        self.A[k] += np.outer(x, x)
        self.A_inv[k] = np.linalg.inv(self.A[k])
        self.b[k] += r * x
        self.pulls[k] += 1


def run(seconds, seed, K=12, d=16, alpha=0.4):
    rng = np.random.default_rng(seed)
    site = NewsSite(K, d, rng)
    policy = LinUCB(K, d, alpha)
    regret, clicks, t = 0.0, 0.0, 0
    warm = None
    begun = time.perf_counter()
    while True:
        x = site.visitor()
        k = policy.select(x)
        r, lost = site.show(x, k)
        policy.update(x, k, r)
        regret += lost
        clicks += r
        t += 1
        if t % 5000 == 0:
            print("t=%d  click rate %.3f  regret per visitor %.4f" % (t, clicks / t, regret / t))
        now = time.perf_counter()
        if warm is None and now - begun > 0.3:
            warm = (now, t)
        if now - begun > seconds:
            break
    return t - warm[1], now - warm[0]


if __name__ == "__main__":
    cl = argparse.ArgumentParser()
    cl.add_argument("--seconds", type=float, default=8.0)
    cl.add_argument("--seed", type=int, default=0)
    o = cl.parse_args()
    n, s = run(o.seconds, o.seed)
    print(json.dumps({"env_steps": n, "seconds": round(s, 3), "env_steps_per_s": round(n / s, 1)}))
