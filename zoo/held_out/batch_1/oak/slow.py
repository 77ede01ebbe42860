"""Recurrent double DQN (episode replay) on a cart-pole without velocities."""
import argparse
import json
import math
import random
import time
from collections import deque

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)


class BlindCartPole:
    """Only the cart position and the pole angle can be seen."""

    MAX_STEPS = 160

    def reset(self):
        self.x, self.v, self.th, self.w = (random.uniform(-0.05, 0.05) for _ in range(4))
        self.t = 0
        return self.x, self.th * 5

    def step(self, a):
        f = 10.0 if a else -10.0
        c, s = math.cos(self.th), math.sin(self.th)
        tmp = (f + 0.05 * self.w * self.w * s) / 1.1
        acc = (9.8 * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c * c / 1.1))
        xa = tmp - 0.05 * acc * c / 1.1
        self.x += 0.02 * self.v
        self.v += 0.02 * xa
        self.th += 0.02 * self.w
        self.w += 0.02 * acc
        self.t += 1
        fell = abs(self.x) > 2.4 or abs(self.th) > 0.21
        return (self.x, self.th * 5), (0.0 if fell else 1.0), fell, self.t >= self.MAX_STEPS


class Episode:
    """obs has one row more than the others."""

    def __init__(self, obs, actions, rewards, terminal):
        self.obs = np.array(obs, np.float32)
        self.actions = np.array(actions, np.int64)
        self.rewards = np.array(rewards, np.float32)
        self.terminal = terminal

    def __len__(self):
        return len(self.actions)


class EpisodeBuffer:
    def __init__(self, capacity, max_len, obs_dim):
        self.episodes = deque(maxlen=capacity)
        self.max_len, self.obs_dim = max_len, obs_dim

    def add(self, ep):
        self.episodes.append(ep)

    def sample(self, n):
        chosen = [self.episodes[i] for i in random.sample(range(len(self.episodes)), n)]
        T = self.max_len
        obs = torch.zeros(T + 1, n, self.obs_dim)
        act = torch.zeros(T, n, dtype=torch.int64)
        rew, done, mask = torch.zeros(T, n), torch.zeros(T, n), torch.zeros(T, n)
        for j, ep in enumerate(chosen):
            L = len(ep)
            obs[:L + 1, j] = torch.from_numpy(ep.obs)
            act[:L, j] = torch.from_numpy(ep.actions)
            rew[:L, j] = torch.from_numpy(ep.rewards)
            done[L - 1, j] = float(ep.terminal)
            mask[:L, j] = 1.0
        return obs, act, rew, done, mask


class RecurrentQ(nn.Module):
    def __init__(self, obs_dim, n_act, hidden=48):
        super().__init__()
        self.inp = nn.Linear(obs_dim, hidden)
        self.rnn = nn.GRU(hidden, hidden)
        self.head = nn.Linear(hidden, n_act)

    def forward(self, obs, h=None):
        y, h = self.rnn(torch.relu(self.inp(obs)), h)
        return self.head(y), h


class DRQN:
    def __init__(self, obs_dim, n_act, max_len, gamma=0.98):
        self.net, self.target = RecurrentQ(obs_dim, n_act), RecurrentQ(obs_dim, n_act)
        self.target.load_state_dict(self.net.state_dict())
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.buffer = EpisodeBuffer(500, max_len, obs_dim)
        self.gamma, self.n_act, self.updates = gamma, n_act, 0

    @torch.no_grad()
    def act(self, obs, h, eps):
        q, h = self.net(torch.tensor(obs).view(1, 1, -1), h)
        if random.random() < eps:
            return random.randrange(self.n_act), h
        return q.argmax().item(), h

    def learn(self, n=16):
        obs, act, rew, done, mask = self.buffer.sample(n)
        q_all, _ = self.net(obs)
        with torch.no_grad():
            best = q_all[1:].argmax(2, keepdim=True)
            q_next = self.target(obs)[0][1:].gather(2, best).squeeze(2)
            y = rew + self.gamma * (1 - done) * q_next
        q = q_all[:-1].gather(2, act.unsqueeze(2)).squeeze(2)
        loss = (mask * (q - y) ** 2).sum() / mask.sum()
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
        self.opt.step()
        self.updates += 1
        if self.updates % 100 == 0:
            self.target.load_state_dict(self.net.state_dict())


def play(env, agent, eps):
    o, h = env.reset(), None
    obs, acts, rews = [o], [], []
    while True:
        a, h = agent.act(o, h, eps)
        o, r, fell, out = env.step(a)
        obs.append(o)
        acts.append(a)
        rews.append(r)
        if fell or out:
            return Episode(obs, acts, rews, fell)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=40)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)

    env = BlindCartPole()
    agent = DRQN(2, 2, env.MAX_STEPS)
    for _ in range(30):
        agent.buffer.add(play(env, agent, 1.0))

    steps = n_ep = 0
    lengths = []
    t0 = time.perf_counter()
    while time.perf_counter() - t0 < args.seconds:
        ep = play(env, agent, max(0.05, 0.5 - n_ep / 600))
        agent.buffer.add(ep)
        steps += len(ep)
        lengths.append(len(ep))
        n_ep += 1
        if n_ep % 2 == 0:
            agent.learn()
    dt = time.perf_counter() - t0
    print("mean length of the last 20 episodes:", sum(lengths[-20:]) / 20)
    print(json.dumps({"env_steps": steps, "seconds": round(dt, 3), "env_steps_per_s": round(steps / dt, 2),
                      "updates": agent.updates}))
