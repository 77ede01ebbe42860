"""Double DQN on stacks of four frames, small enough to share two cores with its collectors."""

import torch
from torch import nn
from torch.nn import functional as F


class QNetwork(nn.Module):
    """Stacks [B, 4, 84, 84] uint8 to Q values [B, actions]."""

    def __init__(self, actions: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4 * 14 * 14, 128), nn.ReLU(), nn.Linear(128, actions))

    def forward(self, frames):
        return self.layers(frames[:, :, ::6, ::6].flatten(1) / 255.0)


class DQN:
    """The learner: online and target network, one update on a batch."""

    def __init__(self, actions: int):
        self.q, self.target = QNetwork(actions), QNetwork(actions)
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=3e-4)
        self.updates = 0

    def update(self, states, actions, rewards, next_states, dones):
        """One gradient step on a batch."""
        with torch.no_grad():
            best = self.q(next_states).argmax(1, keepdim=True)
            next_q = self.target(next_states).gather(1, best).squeeze(1)
            target = rewards + 0.95 * (1 - dones) * next_q
        chosen = self.q(states).gather(1, actions[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(chosen, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.updates += 1
        if self.updates % 200 == 0:
            self.target.load_state_dict(self.q.state_dict())


@torch.no_grad()
def choose(q, state, rng, epsilon):
    """Epsilon-greedy action for one stack."""
    if rng.random() < epsilon:
        return int(rng.integers(3))
    return int(q(torch.from_numpy(state)[None]).argmax())
