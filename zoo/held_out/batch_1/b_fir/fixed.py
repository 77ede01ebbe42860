"""OpenAI-style evolution strategy with antithetic noise; candidates are scored in worker processes."""
import argparse
import json
import multiprocessing
import time

import gymnasium as gym
import numpy as np

N_IN, N_HID, N_OUT = 6, 16, 3
SHAPES = ((N_IN, N_HID), (N_HID,), (N_HID, N_OUT), (N_OUT,))
DIM = sum(int(np.prod(s)) for s in SHAPES)
HORIZON = 60

_env = None


def unpack(theta):
    parts, k = [], 0
    for s in SHAPES:
        n = int(np.prod(s))
        parts.append(theta[k : k + n].reshape(s))
        k += n
    return parts


def fitness(job):
    """Height reached by the free end, summed over a short episode. Returns (score, steps)."""
    global _env
    theta, seed = job
    if _env is None:
        _env = gym.make("Acrobot-v1", max_episode_steps=HORIZON).unwrapped
    w1, b1, w2, b2 = unpack(theta)
    obs, _ = _env.reset(seed=seed)
    score = 0.0
    for t in range(HORIZON):
        h = np.tanh(obs @ w1 + b1)
        a = int((h @ w2 + b2).argmax())
        obs, _, over, _, _ = _env.step(a)
        c1, s1, c2, s2 = obs[:4].tolist()
        score += -c1 - (c1 * c2 - s1 * s2)
        if over:
            score += 2.0 * (HORIZON - t)
            break
    return score, t + 1


def centered_ranks(x):
    r = np.empty(len(x))
    r[x.argsort()] = np.arange(len(x))
    return r / (len(x) - 1) - 0.5


class Adam:
    def __init__(self, n, lr):
        self.m, self.v, self.t, self.lr = np.zeros(n), np.zeros(n), 0, lr

    def step(self, g):
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * g
        self.v = 0.999 * self.v + 0.001 * g * g
        mh = self.m / (1 - 0.9**self.t)
        vh = self.v / (1 - 0.999**self.t)
        return self.lr * mh / (np.sqrt(vh) + 1e-8)


def evaluate_population(pool, population, seed):
    jobs = [(theta, seed) for theta in population]
    results = pool.map(fitness, jobs, chunksize=4)
    scores = np.array([s for s, _ in results])
    return scores, sum(n for _, n in results)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=8.0)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--pairs", type=int, default=8)
    p.add_argument("--sigma", type=float, default=0.1)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()

    rng = np.random.default_rng(args.seed)
    theta = 0.1 * rng.standard_normal(DIM)
    opt = Adam(DIM, 0.05)
    pool = multiprocessing.Pool(args.workers)
    steps = generation = 0
    first = None
    begin = time.perf_counter()
    while True:
        eps = rng.standard_normal((args.pairs, DIM))
        population = np.concatenate([theta + args.sigma * eps, theta - args.sigma * eps])
        scores, n = evaluate_population(pool, population, int(rng.integers(1 << 30)))
        ranks = centered_ranks(scores)
        g = (ranks[: args.pairs] - ranks[args.pairs :]) @ eps / (2 * args.pairs * args.sigma)
        theta = theta + opt.step(g - 0.005 * theta)
        steps += n
        generation += 1
        if generation % 20 == 0:
            print(f"generation {generation:4d}  mean {scores.mean():8.2f}  best {scores.max():8.2f}")
        now = time.perf_counter()
        if first is None and now - begin > 1.0:
            first = (now, steps)
        if now - begin > args.seconds:
            break
    pool.terminate()
    pool.join()
    n, s = steps - first[1], now - first[0]
    print(json.dumps({"env_steps": n, "seconds": round(s, 3), "env_steps_per_s": round(n / s, 1)}))


if __name__ == "__main__":
    main()
