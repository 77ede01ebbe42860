"""DQN on stacks of four frames, small enough for one core: the network sees each fourth pixel."""

import torch
from torch import nn
from torch.nn import functional as F


class QNetwork(nn.Module):
    """Stacks [B, 4, 84, 84], bytes or floats in 0..1, to Q values [B, actions]."""

    def __init__(self, actions: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4 * 21 * 21, 64), nn.ReLU(), nn.Linear(64, actions))

    def forward(self, frames):
        thin = frames[:, :, ::4, ::4].flatten(1)
        return self.layers(thin / 255.0 if thin.dtype == torch.uint8 else thin)


class DQN:
    """Plain DQN with a Huber loss and a hard target copy."""

    def __init__(self, actions: int):
        self.actions = actions
        self.q, self.target = QNetwork(actions), QNetwork(actions)
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=3e-4)
        self.updates = 0

    @torch.no_grad()
    def act(self, state, epsilon: float, rng) -> int:
        """Epsilon-greedy action for one stack [4, 84, 84]."""
        if rng.random() < epsilon:
            return int(rng.integers(self.actions))
        return int(self.q(torch.from_numpy(state)[None]).argmax())

    def update(self, states, actions, rewards, next_states, dones) -> torch.Tensor:
        """One gradient step on a batch; returns the loss as a tensor."""
        with torch.no_grad():
            target = rewards + 0.99 * (1 - dones) * self.target(next_states).amax(1)
        chosen = self.q(states).gather(1, actions[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(chosen, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.updates += 1
        if self.updates % 500 == 0:
            self.target.load_state_dict(self.q.state_dict())
        return loss.detach()
