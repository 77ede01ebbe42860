"""Quantile-regression DQN (Dabney et al., 2017) on Acrobot."""
import argparse
import json
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)

N_QUANT = 24
κ = 1.0
γ = 0.99


class QuantileNet(nn.Module):
    def __init__(self, n_obs, n_act, width=128):
        super().__init__()
        self.n_act = n_act
        self.body = nn.Sequential(
            nn.Linear(n_obs, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, n_act * N_QUANT),
        )

    def forward(self, x):
        return self.body(x).view(-1, self.n_act, N_QUANT)

    def q(self, x):
        return self.forward(x).mean(2)


class Memory:
    def __init__(self, size, n_obs):
        self.s = np.zeros((size, n_obs), np.float32)
        self.s2 = np.zeros((size, n_obs), np.float32)
        self.a = np.zeros(size, np.int64)
        self.r = np.zeros(size, np.float32)
        self.d = np.zeros(size, np.float32)
        self.size, self.n, self.i = size, 0, 0

    def put(self, s, a, r, s2, d):
        i = self.i
        self.s[i], self.a[i], self.r[i], self.s2[i], self.d[i] = s, a, r, s2, d
        self.i = (i + 1) % self.size
        self.n = min(self.n + 1, self.size)

    def draw(self, rng, k):
        ix = rng.integers(0, self.n, k)
        return (torch.from_numpy(x[ix]) for x in (self.s, self.a, self.r, self.s2, self.d))


def huber(u):
    a = u.abs()
    return torch.where(a <= κ, 0.5 * u * u, κ * (a - 0.5 * κ))


def quantile_loss(θ, target, τ):
    """θ, target: (batch, N_QUANT); τ: quantile midpoints."""
    loss = 0.0
    for i in range(N_QUANT):
        u = target - θ[:, i].unsqueeze(1)
        weight = (τ[i] - (u.detach() < 0).float()).abs()
        loss = loss + (weight * huber(u)).mean(1)
    return loss.mean()


class Agent:
    def __init__(self, n_obs, n_act, seed):
        self.rng = np.random.default_rng(seed)
        self.n_act = n_act
        self.online = QuantileNet(n_obs, n_act)
        self.frozen = QuantileNet(n_obs, n_act)
        self.frozen.load_state_dict(self.online.state_dict())
        self.opt = torch.optim.Adam(self.online.parameters(), lr=5e-4, eps=1e-4)
        self.τ = (torch.arange(N_QUANT) + 0.5) / N_QUANT
        self.mem = Memory(50_000, n_obs)
        self.rows = torch.arange(64)
        self.n_updates = 0

    def act(self, s, ε):
        if self.rng.random() < ε:
            return int(self.rng.integers(self.n_act))
        with torch.no_grad():
            return int(self.online.q(torch.from_numpy(s).unsqueeze(0)).argmax())

    def learn(self):
        s, a, r, s2, d = self.mem.draw(self.rng, 64)
        with torch.no_grad():
            z2 = self.frozen(s2)
            best = z2.mean(2).argmax(1)
            target = r.unsqueeze(1) + γ * (1 - d).unsqueeze(1) * z2[self.rows, best]
        θ = self.online(s)[self.rows, a]
        loss = quantile_loss(θ, target, self.τ)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.n_updates += 1
        if self.n_updates % 500 == 0:
            self.frozen.load_state_dict(self.online.state_dict())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=30)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    torch.manual_seed(args.seed)

    env = gym.make("Acrobot-v1")
    agent = Agent(env.observation_space.shape[0], env.action_space.n, args.seed)
    s, _ = env.reset(seed=args.seed)
    steps, score = 0, 0.0
    started = time.perf_counter()
    while steps < 500:
        a = agent.act(s, 1.0)
        s2, r, done, cut, _ = env.step(a)
        agent.mem.put(s, a, r, s2, done)
        s = env.reset()[0] if done or cut else s2
        steps += 1

    steps0, t0 = steps, time.perf_counter()
    while time.perf_counter() - started < args.seconds:
        ε = max(0.05, 1.0 - steps / 8000)
        a = agent.act(s, ε)
        s2, r, done, cut, _ = env.step(a)
        agent.mem.put(s, a, r, s2, done)
        score += r
        s = s2
        if done or cut:
            s, _ = env.reset()
            score = 0.0
        steps += 1
        if steps % 2 == 0:
            agent.learn()
    dt = time.perf_counter() - t0
    n = steps - steps0
    print(json.dumps({"env_steps": n, "seconds": round(dt, 3), "env_steps_per_s": round(n / dt, 2),
                      "updates": agent.n_updates}))


if __name__ == "__main__":
    main()
