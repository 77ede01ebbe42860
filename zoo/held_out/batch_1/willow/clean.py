"""Categorical DQN (C51) with three-step returns on LunarLander."""
import argparse
import json
import time
from collections import deque
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
import torch.nn.functional as F

torch.set_num_threads(1)


@dataclass(frozen=True)
class Hyper:
    atoms: int = 51
    low: float = -100.0
    high: float = 100.0
    gamma: float = 0.99
    n_step: int = 3
    batch: int = 128
    every: int = 2
    target_every: int = 500
    capacity: int = 100_000
    learn_start: int = 1000
    eps_steps: int = 6000
    eps_end: float = 0.05
    lr: float = 5e-4
    width: int = 128


class Support:
    """The fixed grid of returns and the projection of a shifted distribution onto it."""

    def __init__(self, hp: Hyper):
        self.hp = hp
        self.z = torch.linspace(hp.low, hp.high, hp.atoms)
        self.dz = (hp.high - hp.low) / (hp.atoms - 1)
        self.offset = (torch.arange(hp.batch) * hp.atoms).unsqueeze(1)

    def project(self, p: Tensor, rew: Tensor, disc: Tensor) -> Tensor:
        b = (rew.unsqueeze(1) + disc.unsqueeze(1) * self.z).clamp_(self.hp.low, self.hp.high)
        b = b.sub_(self.hp.low).div_(self.dz)
        lo = b.floor().clamp_(max=self.hp.atoms - 2)
        up_share = b - lo
        at = lo.long() + self.offset
        out = torch.zeros(p.numel())
        out.index_add_(0, at.view(-1), (p * (1 - up_share)).view(-1))
        out.index_add_(0, at.view(-1) + 1, (p * up_share).view(-1))
        return out.view_as(p)


class CategoricalNet(nn.Module):
    def __init__(self, obs_size: int, n_actions: int, hp: Hyper):
        super().__init__()
        self.shape = (n_actions, hp.atoms)
        self.layers = nn.Sequential(nn.Linear(obs_size, hp.width), nn.ReLU(),
                                    nn.Linear(hp.width, hp.width), nn.ReLU(),
                                    nn.Linear(hp.width, n_actions * hp.atoms))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).view(-1, *self.shape)


class NStepStore:
    def __init__(self, obs_size: int, hp: Hyper, rng: np.random.Generator):
        self.hp, self.rng = hp, rng
        self.obs = np.zeros((hp.capacity, obs_size), np.float32)
        self.nxt = np.zeros((hp.capacity, obs_size), np.float32)
        self.act = np.zeros(hp.capacity, np.int64)
        self.rew = np.zeros(hp.capacity, np.float32)
        self.disc = np.zeros(hp.capacity, np.float32)
        self.head = self.count = 0
        self.pending: deque = deque()

    def push(self, obs, act, rew, nxt, terminal, over):
        for item in self.pending:
            item[2] += item[3] * rew
            item[3] *= self.hp.gamma
        self.pending.append([obs, act, rew, self.hp.gamma])
        if over:
            while self.pending:
                self._write(nxt, terminal)
        elif len(self.pending) == self.hp.n_step:
            self._write(nxt, False)

    def _write(self, nxt, terminal):
        obs, act, rew, disc = self.pending.popleft()
        i = self.head
        self.obs[i], self.act[i], self.rew[i], self.nxt[i] = obs, act, rew, nxt
        self.disc[i] = 0.0 if terminal else disc
        self.head = (i + 1) % self.hp.capacity
        self.count = min(self.count + 1, self.hp.capacity)

    def sample(self):
        i = self.rng.integers(0, self.count, self.hp.batch)
        return [torch.from_numpy(x.take(i, axis=0)) for x in (self.obs, self.act, self.rew, self.nxt, self.disc)]


class C51Learner:
    def __init__(self, obs_size: int, n_actions: int, hp: Hyper, seed: int):
        torch.manual_seed(seed)
        self.hp, self.n_actions = hp, n_actions
        self.rng = np.random.default_rng(seed)
        self.net, self.target = CategoricalNet(obs_size, n_actions, hp), CategoricalNet(obs_size, n_actions, hp)
        self.target.load_state_dict(self.net.state_dict())
        self.support = Support(hp)
        self.store = NStepStore(obs_size, hp, self.rng)
        self.optim = torch.optim.Adam(self.net.parameters(), lr=hp.lr, eps=1e-4, fused=True)
        self.rows = torch.arange(hp.batch)
        self.updates = 0

    def act(self, obs: np.ndarray, eps: float) -> int:
        if self.rng.random() < eps:
            return int(self.rng.integers(self.n_actions))
        with torch.inference_mode():
            p = self.net(torch.from_numpy(obs)).softmax(2)
            return int((p @ self.support.z).argmax())

    def learn(self):
        obs, act, rew, nxt, disc = self.store.sample()
        with torch.no_grad():
            p = self.target(nxt).softmax(2)
            best = (p @ self.support.z).argmax(1)
            goal = self.support.project(p[self.rows, best], rew, disc)
        logp = F.log_softmax(self.net(obs)[self.rows, act], 1)
        loss = -(goal * logp).sum(1).mean()
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        self.updates += 1
        if self.updates % self.hp.target_every == 0:
            self.target.load_state_dict(self.net.state_dict())


def train(seconds: float, seed: int) -> dict:
    hp = Hyper()
    env = gym.make("LunarLander-v3")
    agent = C51Learner(env.observation_space.shape[0], int(env.action_space.n), hp, seed)
    obs, _ = env.reset(seed=seed)
    step = 0
    began = None
    scores, score = deque(maxlen=20), 0.0
    while began is None or time.perf_counter() - began < seconds:
        eps = max(hp.eps_end, 1.0 - step / hp.eps_steps)
        act = agent.act(obs, eps)
        nxt, rew, terminal, truncated, _ = env.step(act)
        over = terminal or truncated
        agent.store.push(obs, act, rew, nxt, terminal, over)
        score += rew
        obs = nxt
        if over:
            obs, _ = env.reset()
            scores.append(score)
            score = 0.0
        step += 1
        if step == hp.learn_start:
            began = time.perf_counter()
        if step >= hp.learn_start and step % hp.every == 0:
            agent.learn()
    took = time.perf_counter() - began
    print("mean score of the last episodes:", round(float(np.mean(scores)), 1))
    n = step - hp.learn_start
    return {"env_steps": n, "seconds": round(took, 3), "env_steps_per_s": round(n / took, 2), "updates": agent.updates}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(json.dumps(train(options.seconds, options.seed)))
