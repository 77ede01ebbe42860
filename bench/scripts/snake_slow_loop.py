"""The study's slow Snake loop, played by agents of later and later stages of a training, as if it were that training.

Transitions are pushed one by one and batches are made of lists, as in the study; a network learns from them. Only the
actions come from agents that were trained before, so that games grow as they do over thousands of episodes. What was
done by when is written down: it is what `hotloop explain` is held against.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import deque
from pathlib import Path

import numpy as np
import torch
from snake_study import StudySnake
from torch import nn

from hotloop.training.agents.load import load_agent

GAMES, BATCH, UPDATES, LEARNING_STARTS = 32, 64, 4, 4_000
FEATURES = {False: 10, True: 13}


class Games(StudySnake):
    """The study's games, with the info that a step ends with."""

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, dict]:
        return *super().step(actions), {}


class Learner:
    """Plain DQN on batches that are made of lists."""

    def __init__(self, inputs: int) -> None:
        self.net = nn.Sequential(nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3))
        self.optimiser = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.memory: deque[tuple] = deque(maxlen=100_000)
        self.random = random.Random(0)

    def push(self, states, actions, rewards, later, ended) -> None:
        for i in range(len(states)):
            self.memory.append(
                (states[i].numpy(), actions[i].item(), rewards[i].item(), later[i].numpy(), ended[i].item())
            )

    def update(self) -> None:
        s, a, r, s2, d = zip(*self.random.sample(self.memory, BATCH), strict=True)
        now, later = torch.from_numpy(np.stack(s)), torch.from_numpy(np.stack(s2))
        actions, rewards, ended = torch.tensor(a), torch.tensor(r), torch.tensor(d, dtype=torch.float32)
        with torch.no_grad():
            goal = rewards + 0.99 * (1 - ended) * self.net(later).max(1).values
        loss = nn.functional.smooth_l1_loss(self.net(now).gather(1, actions[:, None])[:, 0], goal)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()


def main() -> None:
    """Play every stage for some seconds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("stages", type=Path, help='JSON: [{"checkpoint": path or "", "epsilon": share}, ...]')
    parser.add_argument("truth", type=Path, help="where to write what was done by when")
    parser.add_argument("--seconds", type=float, default=8.0, help="for each stage")
    parser.add_argument("--flood", action="store_true", help="with the flood-fill features")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    stages = json.loads(args.stages.read_text())
    agents = [load_agent(each["checkpoint"]) if each["checkpoint"] else None for each in stages]
    games, learner = Games(GAMES, flood=args.flood), Learner(FEATURES[args.flood])
    states = games.reset(seed=0)
    rows = [(time.monotonic_ns(), 0, 0)]
    steps = episodes = 0
    for agent, stage in zip(agents, stages, strict=True):
        until = time.monotonic() + args.seconds
        while time.monotonic() < until:
            actions = torch.randint(3, (GAMES,))
            if agent is not None:
                greedy = torch.from_numpy(np.asarray(agent.act(states.numpy())))
                actions = torch.where(torch.rand(GAMES) < stage["epsilon"], actions, greedy)
            later, rewards, terminated, truncated, _ = games.step(actions)
            learner.push(states, actions, rewards, later, terminated)
            states = later
            steps += GAMES
            episodes += int((terminated | truncated).sum())
            if steps >= LEARNING_STARTS:
                for _ in range(UPDATES):
                    learner.update()
            rows.append((time.monotonic_ns(), steps, episodes))
    args.truth.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
