"""Model-based control: learn the dynamics of a crane, plan with the cross-entropy method."""
import argparse
import json
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn


@dataclass
class Settings:
    horizon: int = 12
    candidates: int = 100
    elites: int = 12
    iterations: int = 3
    gamma: float = 0.98
    seed_steps: int = 1500
    train_every: int = 10
    train_batches: int = 6
    batch: int = 128
    hidden: int = 48
    capacity: int = 40_000


class Crane:
    """Trolley with a hanging load; state: x, v, sin, cos, omega."""

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.x, self.v, self.phi, self.w, self.t = self.rng.uniform(-2, 2), 0.0, self.rng.uniform(-0.5, 0.5), 0.0, 0
        return self.state()

    def state(self):
        return np.array([self.x, self.v, math.sin(self.phi), math.cos(self.phi), self.w], np.float32)

    def step(self, u):
        for _ in range(2):
            acc = 4.0 * u - 0.3 * self.v
            alpha = -9.8 * math.sin(self.phi) - acc * math.cos(self.phi) - 0.1 * self.w
            self.v += 0.025 * acc
            self.x += 0.025 * self.v
            self.w += 0.025 * alpha
            self.phi += 0.025 * self.w
        self.t += 1
        s = self.state()
        return s, float(cost(s[None])[0]), self.t >= 120 or abs(self.x) > 5


def cost(s):
    return s[..., 0] ** 2 + 0.1 * s[..., 1] ** 2 + 2.0 * s[..., 2] ** 2 + 0.05 * s[..., 4] ** 2


class Archive:
    """All transitions seen so far."""

    def __init__(self, capacity, s_dim, u_dim):
        self.inputs = np.zeros((capacity, s_dim + u_dim), np.float32)
        self.deltas = np.zeros((capacity, s_dim), np.float32)
        self.capacity, self.n, self.head = capacity, 0, 0

    def record(self, s, u, s2):
        i = self.head
        self.inputs[i, :s.size] = s
        self.inputs[i, s.size:] = u
        self.deltas[i] = s2 - s
        self.head = (i + 1) % self.capacity
        self.n = min(self.n + 1, self.capacity)

    def moments(self):
        x, d = self.inputs[:self.n], self.deltas[:self.n]
        return x.mean(0), x.std(0) + 1e-6, d.mean(0), d.std(0) + 1e-6


class Dynamics(nn.Module):
    def __init__(self, archive, s_dim, u_dim, hidden):
        super().__init__()
        self.archive = archive
        self.net = nn.Sequential(nn.Linear(s_dim + u_dim, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(),
                                 nn.Linear(hidden, s_dim))
        self.opt = torch.optim.Adam(self.parameters(), lr=1e-3, fused=True)

    @torch.no_grad()
    def predict(self, s, u):
        mx, sx, md, sd = self.archive.moments()
        x = (np.concatenate([s, u], axis=-1) - mx) / sx
        return s + self.net(torch.from_numpy(x)).numpy() * sd + md

    def train_batches(self, count, size, rng):
        mx, sx, md, sd = self.archive.moments()
        for _ in range(count):
            idx = rng.integers(0, self.archive.n, size)
            x = torch.from_numpy((self.archive.inputs[idx] - mx) / sx)
            y = torch.from_numpy((self.archive.deltas[idx] - md) / sd)
            loss = (self.net(x) - y).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return float(loss.detach())


class CemPlanner:
    def __init__(self, model, cfg, rng):
        self.model, self.cfg, self.rng = model, cfg, rng
        self.reset()

    def reset(self):
        self.mean = np.zeros(self.cfg.horizon, np.float32)

    def evaluate(self, s, plans):
        states = np.repeat(s[None], len(plans), axis=0)
        total = np.zeros(len(plans), np.float32)
        for h in range(self.cfg.horizon):
            states = self.model.predict(states, plans[:, h:h + 1])
            total += self.cfg.gamma ** h * cost(states)
        return total

    def plan(self, s):
        c = self.cfg
        mean, std = self.mean, np.full(c.horizon, 0.6, np.float32)
        for _ in range(c.iterations):
            noise = self.rng.standard_normal((c.candidates, c.horizon), dtype=np.float32)
            plans = np.clip(mean + std * noise, -1, 1)
            score = self.evaluate(s, plans)
            best = plans[np.argpartition(score, c.elites)[:c.elites]]
            mean, std = best.mean(0), best.std(0) + 0.02
        self.mean = np.append(mean[1:], np.float32(0))
        return float(mean[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    cfg = Settings()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    rng = np.random.default_rng(args.seed)
    crane = Crane(rng)
    archive = Archive(cfg.capacity, 5, 1)
    model = Dynamics(archive, 5, 1, cfg.hidden)
    planner = CemPlanner(model, cfg, rng)

    start = time.perf_counter()
    s = crane.reset()
    for _ in range(cfg.seed_steps):
        u = rng.uniform(-1, 1)
        s2, _, done = crane.step(u)
        archive.record(s, u, s2)
        s = crane.reset() if done else s2
    model.train_batches(150, cfg.batch, rng)

    s = crane.reset()
    steps, episode_cost, costs = 0, 0.0, []
    mark, mark_steps = time.perf_counter(), 0
    while time.perf_counter() - start < args.seconds:
        u = planner.plan(s)
        s2, c, done = crane.step(u)
        archive.record(s, u, s2)
        episode_cost += c
        steps += 1
        s = s2
        if done:
            costs.append(episode_cost)
            episode_cost = 0.0
            s = crane.reset()
            planner.reset()
        if steps % cfg.train_every == 0:
            model.train_batches(cfg.train_batches, cfg.batch, rng)
        if steps == 5:
            mark, mark_steps = time.perf_counter(), steps
    span = time.perf_counter() - mark
    print("episode costs:", [round(c, 1) for c in costs[-5:]])
    n = steps - mark_steps
    print(json.dumps({"env_steps": n, "seconds": span, "env_steps_per_s": n / span}))


if __name__ == "__main__":
    main()
