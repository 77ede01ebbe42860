"""Double DQN with prioritised experience replay on CartPole."""
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
class Experience:
    state: np.ndarray
    action: int
    reward: float
    next_state: np.ndarray
    done: float
    priority: float


class QNetwork(nn.Module):
    def __init__(self, n_in, n_out, hidden=96):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.value = nn.Linear(hidden, 1)
        self.adv = nn.Linear(hidden, n_out)

    def forward(self, x):
        h = self.trunk(x)
        a = self.adv(h)
        return self.value(h) + a - a.mean(dim=1, keepdim=True)


class PrioritizedMemory:
    def __init__(self, capacity, alpha=0.6, eps=1e-3, seed=0):
        self.capacity = capacity
        self.alpha = alpha
        self.eps = eps
        self.items = []
        self.priorities = np.zeros(capacity)
        self.pos = 0
        self.max_priority = 1.0
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.items)

    def push(self, s, a, r, s2, d):
        e = Experience(s, a, r, s2, d, self.max_priority)
        if len(self.items) < self.capacity:
            self.items.append(e)
        else:
            self.items[self.pos] = e
        self.priorities[self.pos] = self.max_priority ** self.alpha
        self.pos = (self.pos + 1) % self.capacity

    def sample(self, k, beta):
        weights = self.priorities[:len(self.items)]
        cdf = np.cumsum(weights)
        total = cdf[-1]
        idx = np.searchsorted(cdf, self.rng.random(k) * total, side="right")
        idx = np.minimum(idx, len(self.items) - 1)
        is_w = (len(self.items) * weights[idx] / total) ** (-beta)
        is_w /= is_w.max()
        batch = [self.items[i] for i in idx]
        states = np.stack([e.state for e in batch])
        actions = np.array([e.action for e in batch], dtype=np.int64)
        rewards = np.array([e.reward for e in batch], dtype=np.float32)
        next_states = np.stack([e.next_state for e in batch])
        dones = np.array([e.done for e in batch], dtype=np.float32)
        arrays = (states, actions, rewards, next_states, dones, is_w.astype(np.float32))
        return idx, [torch.from_numpy(x) for x in arrays]

    def update_priorities(self, idx, errors):
        for i, err in zip(idx.tolist(), errors.tolist()):
            p = abs(err) + self.eps
            self.items[i].priority = p
            self.priorities[i] = p ** self.alpha
            if p > self.max_priority:
                self.max_priority = p


class Agent:
    def __init__(self, n_obs, n_act, seed):
        self.n_act = n_act
        self.gamma = 0.99
        self.batch_size = 32
        self.online = QNetwork(n_obs, n_act)
        self.target = QNetwork(n_obs, n_act)
        self.target.load_state_dict(self.online.state_dict())
        self.optim = torch.optim.Adam(self.online.parameters(), lr=5e-4, fused=True)
        self.memory = PrioritizedMemory(30_000, seed=seed)
        self.updates = 0

    def act(self, state, eps):
        if random.random() < eps:
            return random.randrange(self.n_act)
        with torch.no_grad():
            return int(self.online(torch.from_numpy(state)[None]).argmax(1))

    def learn(self):
        beta = min(1.0, 0.4 + self.updates * 1e-4)
        idx, (s, a, r, s2, d, w) = self.memory.sample(self.batch_size, beta)
        with torch.no_grad():
            best = self.online(s2).argmax(1, keepdim=True)
            y = r + self.gamma * (1 - d) * self.target(s2).gather(1, best).squeeze(1)
        q = self.online(s).gather(1, a[:, None]).squeeze(1)
        loss = (w * F.smooth_l1_loss(q, y, reduction="none")).mean()
        self.optim.zero_grad(set_to_none=True)
        loss.backward()
        self.optim.step()
        self.memory.update_priorities(idx, (y - q).detach().numpy())
        self.updates += 1
        if self.updates % 500 == 0:
            self.target.load_state_dict(self.online.state_dict())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    env = gym.make("CartPole-v1")
    agent = Agent(env.observation_space.shape[0], env.action_space.n, args.seed)
    warmup_steps, step, ep_ret, returns = 8000, 0, 0.0, []
    begin = time.perf_counter()
    mark = None
    state, _ = env.reset(seed=args.seed)
    while True:
        eps = 1.0 if step < warmup_steps else max(0.05, 1.0 - (step - warmup_steps) / 3000)
        action = agent.act(state, eps)
        nxt, reward, term, trunc, _ = env.step(action)
        agent.memory.push(state, action, reward, nxt, float(term))
        ep_ret += reward
        state = nxt
        step += 1
        if term or trunc:
            returns.append(ep_ret)
            ep_ret = 0.0
            state, _ = env.reset()
            if len(returns) % 500 == 0:
                print(f"episode {len(returns)} mean return {np.mean(returns[-50:]):.1f}")
        if step >= warmup_steps:
            agent.learn()
            now = time.perf_counter()
            if mark is None and agent.updates >= 20:
                mark = (now, step)
            if now - begin >= args.seconds:
                break
    span = now - mark[0]
    n = step - mark[1]
    print(f"last returns {np.mean(returns[-20:]):.1f}")
    print(json.dumps({"env_steps": n, "seconds": span, "env_steps_per_s": n / span, "updates": agent.updates}))


if __name__ == "__main__":
    main()
