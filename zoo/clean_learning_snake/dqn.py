"""A small DQN: Q network, target network, epsilon-greedy actions, one update on a batch."""

import torch
from torch import nn
from torch.nn import functional as F


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Two hidden layers with ReLU."""
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, outputs),
    )


class DQN:
    """Plain DQN with a Huber loss and a hard target copy."""

    def __init__(self, inputs: int, actions: int, hidden: int = 128, target_every: int = 500):
        self.actions = actions
        self.q = mlp(inputs, hidden, actions)
        self.target = mlp(inputs, hidden, actions)
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=1e-3)
        self.target_every = target_every
        self.updates = 0

    @torch.no_grad()
    def act(self, states: torch.Tensor, epsilon: float) -> torch.Tensor:
        """Epsilon-greedy actions, [N]."""
        greedy = self.q(states).argmax(1)
        anything = torch.randint(self.actions, greedy.shape)
        return torch.where(torch.rand(len(states)) < epsilon, anything, greedy)

    def update(self, states, actions, rewards, next_states, dones) -> torch.Tensor:
        """One gradient step on a batch; returns the loss as a tensor."""
        with torch.no_grad():
            target = rewards + 0.99 * (1 - dones) * self.target(next_states).amax(1)
        chosen = self.q(states).gather(1, actions[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(chosen, target)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.q.parameters(), 1.0)
        self.optimizer.step()
        self.updates += 1
        if self.updates % self.target_every == 0:
            self.target.load_state_dict(self.q.state_dict())
        return loss.detach()
