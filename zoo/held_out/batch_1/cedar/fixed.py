"""DDPG + hindsight experience replay ("future" strategy) on a 2-d puck pushing task."""
from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


@dataclass
class Config:
    horizon: int = 200
    capacity: int = 200_000
    batch: int = 128
    relabel: float = 0.8
    discount: float = 0.98
    polyak: float = 0.95
    noise: float = 0.2
    explore: float = 0.2
    warm_episodes: int = 5
    seconds: float = 30.0
    seed: int = 0


class PuckTable:
    """Frictional puck on a table; the force on the puck is the action."""

    obs_size, goal_size, act_size = 4, 2, 2

    def __init__(self, rng, horizon):
        self.rng, self.horizon = rng, horizon

    def reset(self):
        self.px, self.py = self.rng.uniform(-1, 1, 2).tolist()
        self.vx = self.vy = 0.0
        self.goal = self.rng.uniform(-1, 1, 2).astype(np.float32)
        self.t = 0
        return self.observe()

    def observe(self):
        return np.array([self.px, self.py, self.vx, self.vy], np.float32)

    def step(self, force):
        fx, fy = float(force[0]), float(force[1])
        self.vx = 0.85 * self.vx + 0.03 * fx
        self.vy = 0.85 * self.vy + 0.03 * fy
        self.px = min(1.0, max(-1.0, self.px + self.vx))
        self.py = min(1.0, max(-1.0, self.py + self.vy))
        self.t += 1
        return self.observe(), self.t >= self.horizon


def sparse_reward(achieved, goal):
    return -(np.linalg.norm(achieved - goal, axis=-1) > 0.08).astype(np.float32)


class HindsightBuffer:
    """Transitions of finished episodes, one after the other in flat arrays."""

    def __init__(self, cfg, rng):
        n = cfg.capacity
        self.cfg, self.rng = cfg, rng
        self.obs = np.zeros((n, 4), np.float32)
        self.nxt = np.zeros((n, 4), np.float32)
        self.act = np.zeros((n, 2), np.float32)
        self.goal = np.zeros((n, 2), np.float32)
        self.end = np.zeros(n, np.int64)
        self.pos = self.size = 0

    def commit(self, obs, act, goal):
        """obs: T + 1 observations, act: T actions of one episode."""
        T = len(act)
        if self.pos + T > self.cfg.capacity:
            self.pos = 0
        sl = slice(self.pos, self.pos + T)
        self.obs[sl], self.nxt[sl] = obs[:-1], obs[1:]
        self.act[sl], self.goal[sl] = act, goal
        self.end[sl] = self.pos + T - 1
        self.pos += T
        self.size = max(self.size, self.pos)

    def sample(self):
        cfg = self.cfg
        idx = self.rng.integers(0, self.size, cfg.batch)
        ends = self.end[idx]
        future = idx + (self.rng.random(cfg.batch) * (ends - idx + 1)).astype(np.int64)
        swap = self.rng.random(cfg.batch) < cfg.relabel
        goal = np.where(swap[:, None], self.nxt[future, :2], self.goal[idx])
        nxt = self.nxt[idx]
        rew = sparse_reward(nxt[:, :2], goal)
        return (torch.from_numpy(np.concatenate([self.obs[idx], goal], 1)),
                torch.from_numpy(self.act[idx]),
                torch.from_numpy(rew).unsqueeze(1),
                torch.from_numpy(np.concatenate([nxt, goal], 1)))


def mlp(i, o, out=None):
    layers = [nn.Linear(i, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, o)]
    return nn.Sequential(*layers, *([out] if out else []))


class Learner:
    def __init__(self, cfg, rng):
        self.cfg, self.rng = cfg, rng
        self.pi, self.pi_t = mlp(6, 2, nn.Tanh()), mlp(6, 2, nn.Tanh())
        self.q, self.q_t = mlp(8, 1), mlp(8, 1)
        self.pi_t.load_state_dict(self.pi.state_dict())
        self.q_t.load_state_dict(self.q.state_dict())
        self.opt_pi = torch.optim.Adam(self.pi.parameters(), 1e-3)
        self.opt_q = torch.optim.Adam(self.q.parameters(), 1e-3)
        self.updates = 0

    @torch.no_grad()
    def act(self, obs, goal):
        if self.rng.random() < self.cfg.explore:
            return self.rng.uniform(-1, 1, 2).astype(np.float32)
        a = self.pi(torch.from_numpy(np.concatenate([obs, goal]))).numpy()
        return np.clip(a + self.cfg.noise * self.rng.standard_normal(2), -1, 1).astype(np.float32)

    def update(self, buffer):
        cfg = self.cfg
        s, a, r, s2 = buffer.sample()
        with torch.no_grad():
            y = r + cfg.discount * self.q_t(torch.cat([s2, self.pi_t(s2)], 1))
            y.clamp_(-1 / (1 - cfg.discount), 0.0)
        q_loss = F.mse_loss(self.q(torch.cat([s, a], 1)), y)
        self.opt_q.zero_grad()
        q_loss.backward()
        self.opt_q.step()

        self.q.requires_grad_(False)
        u = self.pi(s)
        pi_loss = -self.q(torch.cat([s, u], 1)).mean() + 0.1 * u.pow(2).mean()
        self.opt_pi.zero_grad()
        pi_loss.backward()
        self.opt_pi.step()
        self.q.requires_grad_(True)
        self.updates += 1

    @torch.no_grad()
    def sync(self):
        for net, tgt in ((self.pi, self.pi_t), (self.q, self.q_t)):
            torch._foreach_lerp_(list(tgt.parameters()), list(net.parameters()), 1 - self.cfg.polyak)


def play(env, learner, cfg):
    obs = np.zeros((cfg.horizon + 1, 4), np.float32)
    act = np.zeros((cfg.horizon, 2), np.float32)
    obs[0], over = env.reset(), False
    t = 0
    while not over:
        act[t] = learner.act(obs[t], env.goal)
        obs[t + 1], over = env.step(act[t])
        t += 1
    return obs, act, env.goal


def train(cfg):
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    env = PuckTable(rng, cfg.horizon)
    buffer, learner = HindsightBuffer(cfg, rng), Learner(cfg, rng)
    for _ in range(cfg.warm_episodes):
        buffer.commit(*play(env, learner, cfg))
    steps, t0 = 0, time.perf_counter()
    while time.perf_counter() - t0 < cfg.seconds:
        buffer.commit(*play(env, learner, cfg))
        steps += cfg.horizon
        for k in range(40):
            learner.update(buffer)
            if k % 4 == 3:
                learner.sync()
    took = time.perf_counter() - t0
    print(json.dumps({"env_steps": steps, "seconds": round(took, 3),
                      "env_steps_per_s": round(steps / took, 2), "updates": learner.updates}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    ns = parser.parse_args()
    train(Config(seconds=ns.seconds, seed=ns.seed))
