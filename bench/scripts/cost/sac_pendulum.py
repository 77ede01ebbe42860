"""Soft actor-critic with small networks on Pendulum: NumPy replay, one update a step."""

import gymnasium as gym
import numpy as np
import torch
from progress import tick
from torch import nn
from torch.nn.functional import mse_loss

torch.set_num_threads(1)
ALPHA, GAMMA, POLYAK, BATCH, SIZE = 0.1, 0.99, 0.995, 64, 5000


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, outputs))


class ReplayBuffer:
    def __init__(self, obs_dim, act_dim, size, seed):
        self.data = {
            "obs": np.zeros((size, obs_dim), np.float32),
            "act": np.zeros((size, act_dim), np.float32),
            "rew": np.zeros((size, 1), np.float32),
            "obs2": np.zeros((size, obs_dim), np.float32),
        }
        self.ptr, self.full, self.size, self.rng = 0, 0, size, np.random.default_rng(seed)

    def store(self, **row):
        for key, value in row.items():
            self.data[key][self.ptr] = value
        self.ptr, self.full = (self.ptr + 1) % self.size, min(self.full + 1, self.size)

    def sample_batch(self, n):
        idx = self.rng.integers(0, self.full, n)
        return {key: torch.from_numpy(rows[idx]) for key, rows in self.data.items()}


class Agent:
    def __init__(self, obs_dim, act_dim):
        self.actor = mlp(obs_dim, 2 * act_dim)
        self.q = nn.ModuleList([mlp(obs_dim + act_dim, 1) for _ in range(2)])
        self.q_target = nn.ModuleList([mlp(obs_dim + act_dim, 1) for _ in range(2)])
        self.q_target.load_state_dict(self.q.state_dict())
        self.pi_opt = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.q_opt = torch.optim.Adam(self.q.parameters(), lr=1e-3)

    def pi(self, obs):
        mean, log_std = self.actor(obs).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        raw = normal.rsample()
        logp = (normal.log_prob(raw) - torch.log(1 - raw.tanh().pow(2) + 1e-6)).sum(-1, keepdim=True)
        return raw.tanh(), logp

    def update(self, b):
        with torch.no_grad():
            a2, logp2 = self.pi(b["obs2"])
            x2 = torch.cat([b["obs2"], a2], -1)
            backup = b["rew"] + GAMMA * (torch.min(*(q(x2) for q in self.q_target)) - ALPHA * logp2)
        x = torch.cat([b["obs"], b["act"]], -1)
        q_loss = sum(mse_loss(q(x), backup) for q in self.q)
        self.q_opt.zero_grad()
        q_loss.backward()
        self.q_opt.step()
        a, logp = self.pi(b["obs"])
        pi_loss = (ALPHA * logp - torch.min(*(q(torch.cat([b["obs"], a], -1)) for q in self.q))).mean()
        self.pi_opt.zero_grad()
        pi_loss.backward()
        self.pi_opt.step()
        with torch.no_grad():
            for p, p_targ in zip(self.q.parameters(), self.q_target.parameters(), strict=True):
                p_targ.mul_(POLYAK).add_((1 - POLYAK) * p)


torch.manual_seed(0)
env = gym.make("Pendulum-v1")
agent, buffer = Agent(3, 1), ReplayBuffer(3, 1, SIZE, seed=0)
o, _ = env.reset(seed=0)
while True:
    with torch.no_grad():
        a, _ = agent.pi(torch.as_tensor(o, dtype=torch.float32))
    o2, r, _, timeout, _ = env.step(2.0 * a.numpy())
    buffer.store(obs=o, act=a, rew=r, obs2=o2)
    o = env.reset()[0] if timeout else o2
    if buffer.full >= BATCH:
        agent.update(buffer.sample_batch(BATCH))
    tick()
