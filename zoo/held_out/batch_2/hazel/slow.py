"""Advantage actor-critic for a warehouse robot, with TensorBoard logging."""
import argparse
import json
import shutil
import tempfile
import time
from abc import ABC, abstractmethod

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical
from torch.utils.tensorboard import SummaryWriter


class WarehouseEnv:
    """Batch of grid halls: fetch the parcel, carry it to the dock."""

    MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self, count, size=9, limit=60, seed=0):
        self.count, self.size, self.limit = count, size, limit
        self.rng = np.random.default_rng(seed)
        self.robot = np.zeros((count, 2), np.int64)
        self.parcel = np.zeros((count, 2), np.int64)
        self.dock = np.zeros((count, 2), np.int64)
        self.loaded = np.zeros(count, bool)
        self.age = np.zeros(count, np.int64)
        self._reset(np.arange(count))

    def _reset(self, which):
        k = len(which)
        self.robot[which] = self.rng.integers(0, self.size, (k, 2))
        self.parcel[which] = self.rng.integers(0, self.size, (k, 2))
        self.dock[which] = self.rng.integers(0, self.size, (k, 2))
        self.loaded[which] = False
        self.age[which] = 0

    def observation(self):
        s = float(self.size)
        return np.concatenate([self.robot / s, (self.parcel - self.robot) / s, (self.dock - self.robot) / s,
                               self.loaded[:, None]], axis=1).astype(np.float32)

    def step(self, action):
        self.robot = np.clip(self.robot + self.MOVES[action], 0, self.size - 1)
        self.age += 1
        pick = ~self.loaded & (self.robot == self.parcel).all(1)
        drop = self.loaded & (self.robot == self.dock).all(1)
        self.loaded |= pick
        reward = (-0.02 + 0.5 * pick + 1.0 * drop).astype(np.float32)
        done = drop | (self.age >= self.limit)
        self._reset(np.flatnonzero(done))
        return self.observation(), reward, done


class RunLogger:
    def __init__(self, directory):
        self.writer = SummaryWriter(directory)
        self.best = -np.inf

    def scalars(self, values, step):
        for key, value in values.items():
            self.writer.add_scalar(key, value, step)

    def network(self, net, step):
        for name, p in net.named_parameters():
            self.writer.add_histogram(f"weights/{name}", p.detach(), step)

    def close(self):
        self.writer.close()


class Trunk(nn.Module):
    def __init__(self, inputs, actions, width=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.actor = nn.Linear(width, actions)
        self.critic = nn.Linear(width, 1)

    def forward(self, x):
        h = self.body(x)
        return self.actor(h), self.critic(h).squeeze(-1)


class OnPolicyAgent(ABC):
    def __init__(self, env, logger, horizon):
        self.env, self.logger, self.horizon = env, logger, horizon
        self.obs = env.observation()
        n, d = self.obs.shape
        self.states = torch.zeros(horizon, n, d)
        self.actions = torch.zeros(horizon, n, dtype=torch.long)
        self.rewards = np.zeros((horizon, n), np.float32)
        self.dones = np.zeros((horizon, n), np.float32)
        self.iteration = 0
        self.log_every = 10

    @abstractmethod
    def choose(self, x): ...

    @abstractmethod
    def improve(self): ...

    def collect(self):
        for t in range(self.horizon):
            x = torch.from_numpy(self.obs)
            self.states[t] = x
            self.actions[t] = self.choose(x)
            self.obs, self.rewards[t], self.dones[t] = self.env.step(self.actions[t].numpy())
        return self.horizon * self.env.count

    def after_update(self, net, stats):
        self.iteration += 1
        if self.iteration % self.log_every == 0:
            self.logger.scalars(stats(), self.iteration)
        self.logger.network(net, self.iteration)

    def iterate(self):
        n = self.collect()
        self.improve()
        return n


class A2CAgent(OnPolicyAgent):
    def __init__(self, env, logger, horizon=64, gamma=0.97, lam=0.95, lr=1e-3):
        super().__init__(env, logger, horizon)
        self.gamma, self.lam = gamma, lam
        self.net = Trunk(self.obs.shape[1], 4)
        self.optimizer = torch.optim.RMSprop(self.net.parameters(), lr=lr, eps=1e-5)

    @torch.no_grad()
    def choose(self, x):
        return torch.multinomial(self.net(x)[0].softmax(-1), 1).squeeze(1)

    def advantages(self, values, last):
        adv = np.zeros_like(self.rewards)
        acc = 0.0
        for t in reversed(range(self.horizon)):
            alive = 1.0 - self.dones[t]
            delta = self.rewards[t] + self.gamma * alive * last - values[t]
            acc = delta + self.gamma * self.lam * alive * acc
            adv[t] = acc
            last = values[t]
        return adv

    def improve(self):
        logits, values = self.net(self.states.flatten(0, 1))
        with torch.no_grad():
            last = self.net(torch.from_numpy(self.obs))[1].numpy()
            v = values.detach().view(self.horizon, -1)
            adv = torch.from_numpy(self.advantages(v.numpy(), last))
            target = (adv + v).flatten()
            adv = adv.flatten()
            adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        dist = Categorical(logits=logits, validate_args=False)
        pg = -(dist.log_prob(self.actions.flatten()) * adv).mean()
        entropy = dist.entropy().mean()
        vf = (values - target).pow(2).mean()
        loss = pg + 0.5 * vf - 0.02 * entropy
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        self.optimizer.step()
        self.after_update(self.net, lambda: {
            "loss/policy": pg.item(), "loss/value": vf.item(), "entropy": entropy.item(),
            "reward/mean": float(self.rewards.mean())})


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    folder = tempfile.mkdtemp(prefix="warehouse_")
    logger = RunLogger(folder)
    agent = A2CAgent(WarehouseEnv(32, seed=args.seed), logger)
    steps, counted_from, clock = 0, 0, None
    start = time.perf_counter()
    while time.perf_counter() - start < args.seconds:
        steps += agent.iterate()
        if agent.iteration == 10:
            clock, counted_from = time.perf_counter(), steps
    span = time.perf_counter() - clock
    logger.close()
    shutil.rmtree(folder, ignore_errors=True)
    print(f"mean reward of the last rollout {agent.rewards.mean():+.4f}")
    print(json.dumps({"env_steps": steps - counted_from, "seconds": span,
                      "env_steps_per_s": (steps - counted_from) / span, "updates": agent.iteration}))


if __name__ == "__main__":
    main()
