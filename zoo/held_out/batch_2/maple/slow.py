"""DRQN: recurrent Q-learning on CartPole without velocities."""
import argparse
import json
import random
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

SEQ_LEN = 32
BATCH = 16
HIDDEN = 48
GAMMA = 0.99


class HideVelocity(gym.ObservationWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def observation(self, observation):
        return observation[[0, 2]]


class RecurrentQ(nn.Module):
    def __init__(self, obs_dim, n_actions):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(obs_dim, HIDDEN), nn.ReLU())
        self.rnn = nn.GRU(HIDDEN, HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, n_actions)

    def forward(self, x, h=None):
        """x: (batch, time, obs) -> q: (batch, time, actions), h"""
        z = self.encoder(x)
        z, h = self.rnn(z, h)
        return self.head(z), h

    def unroll(self, x):
        h = torch.zeros(1, x.shape[0], HIDDEN)
        outputs = []
        for t in range(x.shape[1]):
            q, h = self(x[:, t:t + 1], h)
            outputs.append(q)
        return torch.cat(outputs, dim=1)


class SequenceStore:
    """Ring of fixed windows; short ones are masked."""

    def __init__(self, capacity, obs_dim):
        self.capacity = capacity
        self.obs = np.zeros((capacity, SEQ_LEN + 1, obs_dim), np.float32)
        self.act = np.zeros((capacity, SEQ_LEN), np.int64)
        self.rew = np.zeros((capacity, SEQ_LEN), np.float32)
        self.end = np.zeros((capacity, SEQ_LEN), np.float32)
        self.mask = np.zeros((capacity, SEQ_LEN), np.float32)
        self.count = 0
        self.row, self.col = 0, 0

    def append(self, o, a, r, o2, term, last):
        i, j = self.row, self.col
        if j == 0:
            self.mask[i] = 0.0
        self.obs[i, j], self.obs[i, j + 1] = o, o2
        self.act[i, j], self.rew[i, j], self.end[i, j], self.mask[i, j] = a, r, term, 1.0
        self.col += 1
        if last or self.col == SEQ_LEN:
            self.col = 0
            self.row = (i + 1) % self.capacity
            self.count = min(self.count + 1, self.capacity)

    def sample(self, n):
        idx = np.random.randint(0, self.count, n)
        return [torch.from_numpy(a[idx]) for a in (self.obs, self.act, self.rew, self.end, self.mask)]


class DRQNAgent:
    def __init__(self, obs_dim, n_actions):
        self.n_actions = n_actions
        self.q = RecurrentQ(obs_dim, n_actions)
        self.q_target = RecurrentQ(obs_dim, n_actions)
        self.q_target.load_state_dict(self.q.state_dict())
        self.opt = torch.optim.Adam(self.q.parameters(), lr=1e-3, fused=True)
        self.store = SequenceStore(4000, obs_dim)
        self.n_updates = 0
        self.h = None

    def begin_episode(self):
        self.h = torch.zeros(1, 1, HIDDEN)

    @torch.no_grad()
    def act(self, o, eps):
        q, self.h = self.q(torch.from_numpy(o)[None, None], self.h)
        if random.random() < eps:
            return random.randrange(self.n_actions)
        return int(q.argmax())

    def update(self):
        obs, act, rew, end, mask = self.store.sample(BATCH)
        q_all = self.q.unroll(obs)
        with torch.no_grad():
            q_next = self.q_target.unroll(obs)[:, 1:]
            best = q_all[:, 1:].argmax(-1, keepdim=True)
            target = rew + GAMMA * (1 - end) * q_next.gather(-1, best).squeeze(-1)
        q = q_all[:, :-1].gather(-1, act.unsqueeze(-1)).squeeze(-1)
        loss = ((q - target).pow(2) * mask).sum() / mask.sum()
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.q.parameters(), 10.0)
        self.opt.step()
        self.n_updates += 1
        if self.n_updates % 200 == 0:
            self.q_target.load_state_dict(self.q.state_dict())


def train(seconds, seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    env = HideVelocity(gym.make("CartPole-v1"))
    agent = DRQNAgent(2, 2)
    steps, returns = 0, []
    t_begin = time.perf_counter()
    t_from, steps_from = None, 0
    over = False
    while not over:
        o, _ = env.reset(seed=seed if steps == 0 else None)
        agent.begin_episode()
        done, total = False, 0.0
        while not done and not over:
            eps = max(0.05, 1.0 - steps / 5000)
            a = agent.act(o, eps)
            o2, r, term, trunc, _ = env.step(a)
            done = term or trunc
            agent.store.append(o, a, r, o2, float(term), done)
            o = o2
            total += r
            steps += 1
            if agent.store.count >= 40 and steps % 4 == 0:
                agent.update()
                if agent.n_updates == 10:
                    t_from, steps_from = time.perf_counter(), steps
            over = time.perf_counter() - t_begin >= seconds
        returns.append(total)
        if len(returns) % 100 == 0:
            print(f"episode {len(returns):5d}  steps {steps:7d}  return {np.mean(returns[-100:]):.1f}")
    span = time.perf_counter() - t_from
    n = steps - steps_from
    return {"env_steps": n, "seconds": span, "env_steps_per_s": n / span, "updates": agent.n_updates}


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--seconds", type=float, default=20)
    cli.add_argument("--seed", type=int, default=0)
    ns = cli.parse_args()
    print(json.dumps(train(ns.seconds, ns.seed)))
