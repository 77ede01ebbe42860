"""Bootstrapped DQN with K heads on Acrobot."""
import argparse
import json
import random
import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    seconds: float = 20.0
    seed: int = 0
    num_threads: int = 1
    heads: int = 8
    mask_p: float = 0.8
    hidden: int = 64
    batch_size: int = 128
    lr: float = 1e-3
    gamma: float = 0.99
    capacity: int = 50_000
    learn_start: int = 1000
    learn_every: int = 2
    target_every: int = 400


def setup(cfg):
    random.seed(cfg.seed)
    np.random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(cfg.num_threads)
    return np.random.default_rng(cfg.seed)


class HeadedQ(nn.Module):
    def __init__(self, obs_dim, n_act, cfg):
        super().__init__()
        self.heads, self.n_act = cfg.heads, n_act
        self.body = nn.Sequential(nn.Linear(obs_dim, cfg.hidden), nn.ReLU(),
                                  nn.Linear(cfg.hidden, cfg.hidden), nn.ReLU())
        self.out = nn.Linear(cfg.hidden, cfg.heads * n_act)

    def forward(self, x):
        return self.out(self.body(x)).view(-1, self.heads, self.n_act)


class Replay:
    def __init__(self, cfg, obs_dim, rng):
        n = cfg.capacity
        self.cfg, self.rng = cfg, rng
        self.s, self.s2 = np.zeros((n, obs_dim), np.float32), np.zeros((n, obs_dim), np.float32)
        self.a, self.r = np.zeros(n, np.int64), np.zeros(n, np.float32)
        self.d, self.m = np.zeros(n, np.float32), np.zeros((n, cfg.heads), np.float32)
        self.i = self.n = 0

    def add(self, s, a, r, s2, d):
        i = self.i
        self.s[i], self.a[i], self.r[i], self.s2[i], self.d[i] = s, a, r, s2, d
        self.m[i] = self.rng.random(self.cfg.heads) < self.cfg.mask_p
        self.i = (i + 1) % self.cfg.capacity
        self.n = min(self.n + 1, self.cfg.capacity)

    def batch(self):
        k = self.rng.integers(0, self.n, self.cfg.batch_size)
        return [torch.from_numpy(x[k]) for x in (self.s, self.a, self.r, self.s2, self.d, self.m)]


class BootstrappedDQN:
    def __init__(self, obs_dim, n_act, cfg, rng):
        self.cfg, self.n_act = cfg, n_act
        self.net, self.target = HeadedQ(obs_dim, n_act, cfg), HeadedQ(obs_dim, n_act, cfg)
        self.target.load_state_dict(self.net.state_dict())
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr, fused=True)
        self.replay = Replay(cfg, obs_dim, rng)
        self.head = 0
        self.updates = 0

    def new_episode(self):
        self.head = random.randrange(self.cfg.heads)

    @torch.no_grad()
    def act(self, s):
        return int(self.net(torch.from_numpy(s)[None])[0, self.head].argmax())

    def update(self):
        s, a, r, s2, d, m = self.replay.batch()
        with torch.no_grad():
            best = self.net(s2).argmax(-1, keepdim=True)
            nxt = self.target(s2).gather(-1, best).squeeze(-1)
            y = r[:, None] + self.cfg.gamma * (1 - d[:, None]) * nxt
        idx = a[:, None, None].expand(-1, self.cfg.heads, 1)
        q = self.net(s).gather(-1, idx).squeeze(-1)
        loss = (F.smooth_l1_loss(q, y, reduction="none") * m).sum(1).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.updates += 1
        if self.updates % self.cfg.target_every == 0:
            self.target.load_state_dict(self.net.state_dict())


def main(cfg):
    rng = setup(cfg)
    env = gym.make("Acrobot-v1")
    agent = BootstrappedDQN(env.observation_space.shape[0], int(env.action_space.n), cfg, rng)
    s, _ = env.reset(seed=cfg.seed)
    agent.new_episode()
    step, score, scores = 0, 0.0, []
    begin = time.perf_counter()
    mark = None
    while time.perf_counter() - begin < cfg.seconds:
        a = random.randrange(agent.n_act) if step < cfg.learn_start else agent.act(s)
        s2, r, term, trunc, _ = env.step(a)
        agent.replay.add(s, a, r, s2, float(term))
        s = s2
        score += r
        step += 1
        if term or trunc:
            scores.append(score)
            score = 0.0
            s, _ = env.reset()
            agent.new_episode()
        if step >= cfg.learn_start and step % cfg.learn_every == 0:
            agent.update()
            if agent.updates == 20:
                mark = (step, time.perf_counter())
    span = time.perf_counter() - mark[1]
    n = step - mark[0]
    print("scores:", scores[-5:])
    print(json.dumps({"env_steps": n, "seconds": span, "env_steps_per_s": n / span, "updates": agent.updates}))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=20.0)
    p.add_argument("--seed", type=int, default=0)
    main(Config(**vars(p.parse_args())))
