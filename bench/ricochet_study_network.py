"""ConvLSTM on pictures as the study had it: cells on a grid of 64×64 pixels, and the mean over all of it.

Written afresh from what the study's public code says, as the thing to compare with, at the size at which its times are
those that were measured of the original. Two 3×3 convolutions look at every pixel, the result is halved once, and two
layers of convolutional LSTM cells run on the 4,096 places that are left. As a program it trains a few steps:
`hotloop run bench/ricochet_study_network.py` says where the time goes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn

from hotloop.training.envs.ricochet import RicochetVectorEnv
from hotloop.training.learn.loss_terms import normalise, ppo_losses

CHANNELS, LAYERS, FEATURES, ACTIONS = 32, 2, 128, 16
BOARDS, STEPS, EPOCHS = 8, 2, 4
"""Boards as the study has them; fewer steps an iteration, for each takes a third of a second."""


class StudyCell(nn.Module):
    """A convolutional LSTM cell: everything it is given goes through one convolution."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.pool = nn.Conv2d(2 * CHANNELS, CHANNELS, 1)
        self.conv = nn.Conv2d(inputs + 2 * CHANNELS, 4 * CHANNELS, 3, padding=1)

    def forward(self, given: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        pooled = torch.cat([hidden.mean((2, 3), keepdim=True), hidden.amax((2, 3), keepdim=True)], dim=1)
        pooled = self.pool(pooled).expand_as(hidden)
        take, forget, new, out = self.conv(torch.cat([given, pooled, hidden], dim=1)).chunk(4, dim=1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(take) * torch.tanh(new)
        return torch.tanh(out) * torch.tanh(cell), cell


class StudyNetwork(nn.Module):
    """Encoder, cells, mean over the board, projection, heads."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, CHANNELS, 3, padding=1), nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.AvgPool2d(2)
        )
        self.cells = nn.ModuleList(StudyCell(CHANNELS + 1 + (CHANNELS if k else 0)) for k in range(LAYERS))
        self.project = nn.Sequential(nn.Linear(CHANNELS, 256), nn.ReLU(), nn.Linear(256, FEATURES))
        self.policy, self.value = nn.Linear(FEATURES, ACTIONS), nn.Linear(FEATURES, 1)

    def forward(self, obs: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Pictures `[B, 128, 128, 3]` and memory `[4, B, 32, 64, 64]` → logits, values, memory."""
        board = self.encoder(obs.permute(0, 3, 1, 2).float() / 255)
        border = torch.zeros_like(board[:, :1])
        border[:, :, 0] = border[:, :, -1] = 1
        border[:, :, :, 0] = border[:, :, :, -1] = 1
        hidden, states = list(memory[:LAYERS]), list(memory[LAYERS:])
        for k, cell in enumerate(self.cells):
            given = [board, border] if k == 0 else [board, border, hidden[k - 1]]
            hidden[k], states[k] = cell(torch.cat(given, dim=1), hidden[k], states[k])
        features = self.project(hidden[-1].mean((2, 3)))
        return self.policy(features), self.value(features).squeeze(1), torch.stack([*hidden, *states])


def study_training() -> Callable[[], object]:
    """Return an iteration of training with it: some steps of all boards, then four epochs over them."""
    torch.manual_seed(0)
    network = StudyNetwork()
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-4)
    env = RicochetVectorEnv(BOARDS, observation="rgb", level=0)
    obs, _ = env.reset(seed=0)
    memory = torch.zeros(2 * LAYERS, BOARDS, CHANNELS, 64, 64)

    def iteration() -> None:
        nonlocal obs, memory
        rows = []
        for _ in range(STEPS):
            seen = torch.from_numpy(obs)
            with torch.no_grad():
                logits, value, after = network(seen, memory)
            policy = torch.distributions.Categorical(logits=logits)
            action = policy.sample()
            obs, reward, terminated, truncated, _ = env.step(action.numpy())
            target = torch.from_numpy(reward) + 0.99 * value * torch.from_numpy(~terminated)
            rows.append((seen, memory, action, policy.log_prob(action), target - value, target))
            memory = after * torch.from_numpy(~(terminated | truncated))[None, :, None, None, None]
        seen, before, *old = (torch.cat(column, dim=int(k == 1)) for k, column in enumerate(zip(*rows, strict=True)))
        for _ in range(EPOCHS):
            logits, value, _ = network(seen, before)
            losses = ppo_losses(logits, value, (old[0], old[1], normalise(old[2]), old[3]), 0.2)
            loss = losses.policy + 0.5 * losses.value - 0.01 * losses.entropy
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 0.5)
            optimiser.step()

    return iteration


if __name__ == "__main__":
    torch.set_num_threads(2)
    train = study_training()
    for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else 12):
        train()
        print(f"{(number + 1) * BOARDS * STEPS} steps", flush=True)
