import argparse
import json
import math
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

torch.set_num_threads(1)

parser = argparse.ArgumentParser(description="REINFORCE with baseline")
parser.add_argument("--gamma", type=float, default=0.995)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--hidden", type=int, default=32)
parser.add_argument("--seconds", type=float, default=30)
parser.add_argument("--seed", type=int, default=0)


class TankEnv:
    """Keep the level of two coupled water tanks near a moving set point; one valve, three positions."""

    def __init__(self, max_steps=800):
        self.max_steps = max_steps

    def reset(self):
        self.h1, self.h2 = random.uniform(0.2, 0.8), random.uniform(0.2, 0.8)
        self.phase = random.uniform(0, 6.28)
        self.t = 0
        return self._state()

    def _target(self):
        return 0.5 + 0.2 * math.sin(self.phase + 0.01 * self.t)

    def _state(self):
        return (self.h1, self.h2, self._target(), math.cos(self.phase + 0.01 * self.t))

    def step(self, valve):
        flow = 0.03 * valve
        self.h1 += flow - 0.05 * math.sqrt(self.h1) + random.gauss(0, 0.001)
        self.h1 = min(max(self.h1, 0.0), 1.2)
        self.h2 += 0.05 * math.sqrt(self.h1) - 0.045 * math.sqrt(self.h2)
        self.h2 = min(max(self.h2, 0.0), 1.2)
        self.t += 1
        reward = 1.0 - 4.0 * abs(self.h2 - self._target())
        spilled = self.h1 >= 1.2
        return self._state(), reward - (10.0 if spilled else 0.0), spilled or self.t >= self.max_steps


class Policy(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.fc1 = nn.Linear(4, hidden)
        self.fc2 = nn.Linear(hidden, 3)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


class Baseline(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.fc1 = nn.Linear(4, hidden)
        self.fc2 = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x))).squeeze(-1)


def select_action(policy, state):
    with torch.no_grad():
        logits = policy(torch.tensor(state)).tolist()
    top = max(logits)
    weights = [math.exp(l - top) for l in logits]
    return random.choices((0, 1, 2), weights)[0]


def compute_returns(rewards, gamma):
    return [sum(gamma ** k * r for k, r in enumerate(rewards[t:])) for t in range(len(rewards))]


def finish_episode(policy, baseline, optimizer, states, actions, rewards, gamma):
    returns = compute_returns(rewards, gamma)
    G = torch.tensor(returns) * (1 - gamma)
    S = torch.tensor(states)
    A = torch.tensor(actions)
    V = baseline(S)
    adv = G - V.detach()
    adv = (adv - adv.mean()) / (adv.std() + 1e-6)
    logp = F.log_softmax(policy(S), dim=1)
    loss = -(logp.gather(1, A.unsqueeze(1)).squeeze(1) * adv).mean()
    loss = loss - 0.01 * -(logp.exp() * logp).sum(1).mean() + F.mse_loss(V, G)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    args = parser.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    env = TankEnv()
    policy, baseline = Policy(args.hidden), Baseline(args.hidden)
    optimizer = optim.Adam([*policy.parameters(), *baseline.parameters()], lr=args.lr)

    running_reward, episodes = 0.0, 0
    total_steps = counted = 0
    clock = None
    t_begin = time.perf_counter()
    while time.perf_counter() - t_begin < args.seconds:
        state = env.reset()
        states, actions, rewards = [], [], []
        done = False
        while not done:
            action = select_action(policy, state)
            states.append(state)
            actions.append(action)
            state, reward, done = env.step(action)
            rewards.append(reward)
        total_steps += len(rewards)
        if clock is not None:
            counted += len(rewards)
        finish_episode(policy, baseline, optimizer, states, actions, rewards, args.gamma)
        running_reward = 0.9 * running_reward + 0.1 * sum(rewards)
        episodes += 1
        if clock is None and time.perf_counter() - t_begin > 0.8:
            clock = time.perf_counter()
        if episodes % 20 == 0:
            print(f"episode {episodes}  steps {total_steps}  running reward {running_reward:.1f}")
    secs = time.perf_counter() - clock
    print(json.dumps({"env_steps": counted, "seconds": round(secs, 3), "env_steps_per_s": round(counted / secs, 2),
                      "updates": episodes}))


if __name__ == "__main__":
    main()
