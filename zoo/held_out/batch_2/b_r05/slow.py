"""REINFORCE with a learned baseline on Acrobot-v1, with a learning curve saved as a picture."""
import argparse
import json
import os
import tempfile
import time

import gymnasium as gym
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical


class PolicyValue(nn.Module):
    def __init__(self, n_in, n_out, n_hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, n_hidden), nn.Tanh())
        self.pi = nn.Linear(n_hidden, n_out)
        self.v = nn.Linear(n_hidden, 1)

    def forward(self, x):
        h = self.body(x)
        return self.pi(h), self.v(h).squeeze(-1)


class Report:
    """Collects the returns of the episodes and draws them."""

    def __init__(self, folder, name):
        self.path = os.path.join(folder, name + ".png")
        self.returns = []
        self.fig, self.ax = plt.subplots(figsize=(6, 4))

    def add(self, value):
        self.returns.append(value)

    def moving_average(self, n=20):
        data = np.asarray(self.returns, dtype=float)
        if len(data) < n:
            return np.arange(0), data[:0]
        total = np.cumsum(np.insert(data, 0, 0.0))
        return np.arange(n - 1, len(data)), (total[n:] - total[:-n]) / n

    def draw(self):
        self.ax.clear()
        self.ax.set_title("Acrobot-v1")
        self.ax.set_xlabel("episode")
        self.ax.set_ylabel("return")
        self.ax.plot(self.returns, alpha=0.4, label="return")
        x, y = self.moving_average()
        self.ax.plot(x, y, label="mean of 20")
        self.ax.grid(True)
        self.ax.legend(loc="upper left")
        self.fig.savefig(self.path, dpi=80)


def discounted(rewards, gamma):
    out = np.empty(len(rewards), dtype=np.float32)
    running = 0.0
    for i in range(len(rewards) - 1, -1, -1):
        running = rewards[i] + gamma * running
        out[i] = running
    return out


def play(env, net, clock):
    obs, _ = env.reset()
    states, actions, rewards = [], [], []
    done = False
    while not done and not clock.over():
        with torch.no_grad():
            logits, _ = net(torch.from_numpy(obs))
        action = Categorical(logits=logits, validate_args=False).sample().item()
        states.append(obs)
        actions.append(action)
        obs, reward, terminated, truncated, _ = env.step(action)
        rewards.append(float(reward))
        done = terminated or truncated
        clock.step()
    return np.stack(states), np.array(actions), rewards, done


def improve(net, optimizer, states, actions, returns):
    states, actions, returns = map(torch.from_numpy, (states, actions, returns))
    logits, values = net(states)
    advantage = returns - values.detach()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    logp = F.log_softmax(logits, dim=1)
    chosen = logp.gather(1, actions[:, None]).squeeze(1)
    entropy = -(logp.exp() * logp).sum(1).mean()
    loss = -(chosen * advantage).mean() + 0.5 * F.smooth_l1_loss(values, returns) - 0.01 * entropy
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()


class Clock:
    def __init__(self, limit, warmup=1.2):
        self.limit, self.warmup = limit, warmup
        self.start = time.perf_counter()
        self.count = self.count0 = 0
        self.mark = None
        self.now = self.start

    def step(self):
        self.count += 1
        self.now = time.perf_counter()
        if self.mark is None and self.now - self.start >= self.warmup:
            self.mark, self.count0 = self.now, self.count

    def over(self):
        return self.now - self.start >= self.limit

    def line(self):
        n, s = self.count - self.count0, self.now - self.mark
        return json.dumps({"env_steps": n, "seconds": round(s, 3), "env_steps_per_s": round(n / s, 2)})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)

    env = gym.make("Acrobot-v1", max_episode_steps=300)
    env.reset(seed=args.seed)
    net = PolicyValue(env.observation_space.shape[0], env.action_space.n)
    optimizer = torch.optim.Adam(net.parameters(), lr=args.lr)

    with tempfile.TemporaryDirectory() as folder:
        report = Report(folder, "acrobot")
        report.draw()
        clock = Clock(args.seconds)
        episode = 0
        while not clock.over():
            states, actions, rewards, finished = play(env, net, clock)
            if not finished:
                break
            improve(net, optimizer, states, actions, discounted(rewards, args.gamma))
            episode += 1
            report.add(sum(rewards))
            report.draw()
            if episode % 20 == 0:
                print(f"episode {episode:4d}  mean return {np.mean(report.returns[-20:]):8.2f}")
        report.draw()
    env.close()
    print(clock.line())


if __name__ == "__main__":
    main()
