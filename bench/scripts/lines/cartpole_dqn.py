"""DQN on Gymnasium's CartPole in one file: many small torch operations, most of them in phases that hooks know."""

from __future__ import annotations

import random
import sys
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from loop_clock import Clock
from torch import nn

clock = Clock(__file__)


class Agent:
    """An online and a target network."""

    def __init__(self) -> None:
        self.net, self.target = self.network(), self.network()
        self.optimiser = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def network(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def learn(self, batch: list[tuple]) -> None:
        with clock.part("collate"):
            states, actions, rewards, laters, ended = zip(*batch, strict=True)
            now, later = torch.from_numpy(np.stack(states)), torch.from_numpy(np.stack(laters))
            taken, reward = torch.tensor(actions)[:, None], torch.tensor(rewards, dtype=torch.float32)
            alive = 1 - torch.tensor(ended, dtype=torch.float32)
        with clock.part("loss", own=False):
            with torch.no_grad():
                goal = reward + 0.99 * alive * self.target(later).max(1).values
            loss = nn.functional.smooth_l1_loss(self.net(now).gather(1, taken)[:, 0], goal)
        with clock.part("backward", own=False):
            self.optimiser.zero_grad()
            loss.backward()
        with clock.part("optimiser", own=False):
            self.optimiser.step()
        with clock.part("soft update"):
            for slow, fast in zip(self.target.parameters(), self.net.parameters(), strict=True):
                slow.data.mul_(0.995).add_(fast.data * 0.005)


def main(seconds: float) -> None:
    torch.set_num_threads(1)
    env, agent = gym.make("CartPole-v1"), Agent()
    obs, _ = env.reset(seed=1)
    memory: deque[tuple] = deque(maxlen=20_000)
    for step in clock.steps(seconds):
        with clock.part("act", own=False), torch.no_grad():
            greedy = random.random() < 0.9
            action = int(agent.net(torch.from_numpy(obs)).argmax()) if greedy else env.action_space.sample()
        with clock.part("env.step", own=False):
            later, reward, terminated, truncated, _ = env.step(action)
        memory.append((obs, action, reward, later, terminated))
        obs = later
        if terminated or truncated:
            obs, _ = env.reset()
        if step >= 64:
            agent.learn(random.sample(memory, 64))


if __name__ == "__main__":
    main(float(sys.argv[1]))
    clock.report()
