"""Soft actor-critic on stacks of grey frames, small enough for one core.

Every network looks at each eighth pixel only: what matters in this folder is how a batch gets here.
"""

import copy

import torch
from torch import nn
from torch.nn import functional as F


def encode(frames: torch.Tensor) -> torch.Tensor:
    """Thin out stacks [B, 4, 96, 96], bytes or floats in 0..1, to float features [B, 576]."""
    thin = frames[:, :, ::8, ::8].flatten(1)
    return thin / 255.0 if thin.dtype == torch.uint8 else thin


class Actor(nn.Module):
    """Tanh-Gaussian policy."""

    def __init__(self, actions: int):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(576, 64), nn.ReLU())
        self.mean = nn.Linear(64, actions)
        self.log_std = nn.Linear(64, actions)

    def forward(self, x):
        h = self.body(x)
        mean, std = self.mean(h), self.log_std(h).clamp(-5, 2).exp()
        noise = torch.randn_like(mean)
        u = mean + std * noise
        action = torch.tanh(u)
        log_prob = -0.5 * noise**2 - std.log() - 0.919 - torch.log(1 - action**2 + 1e-6)
        return action, log_prob.sum(1, keepdim=True)


class Critic(nn.Module):
    """Q(s, a)."""

    def __init__(self, actions: int):
        super().__init__()
        self.fc1 = nn.Linear(576 + actions, 64)
        self.fc2 = nn.Linear(64, 1)

    def forward(self, x, action):
        return self.fc2(F.relu(self.fc1(torch.cat((x, action), 1))))


class SAC:
    """Twin critics with targets, learned temperature, Adam 3e-4."""

    def __init__(self, actions: int):
        self.actor = Actor(actions)
        self.critics = nn.ModuleList([Critic(actions), Critic(actions)])
        self.targets = copy.deepcopy(self.critics)
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.target_entropy = -float(actions)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.critic_opt = torch.optim.Adam(self.critics.parameters(), lr=3e-4)
        self.alpha_opt = torch.optim.Adam([self.log_alpha], lr=3e-4)

    @torch.no_grad()
    def act(self, state):
        """Sample one action for a stack [4, 96, 96]."""
        action, _ = self.actor(encode(torch.from_numpy(state)[None]))
        return action[0].numpy()

    def update(self, states, actions, rewards, next_states, dones):
        """One update of critics, actor, temperature and targets."""
        x, next_x = encode(states), encode(next_states)
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            next_action, next_log_prob = self.actor(next_x)
            next_q = torch.min(*(target(next_x, next_action) for target in self.targets))
            target_q = rewards + 0.99 * (1 - dones) * (next_q - alpha * next_log_prob)
        critic_loss = sum(F.mse_loss(critic(x, actions), target_q) for critic in self.critics)
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()

        action, log_prob = self.actor(x)
        q = torch.min(*(critic(x, action) for critic in self.critics))
        actor_loss = (alpha * log_prob - q).mean()
        self.actor_opt.zero_grad()
        actor_loss.backward(inputs=list(self.actor.parameters()))
        self.actor_opt.step()

        alpha_loss = -(self.log_alpha * (log_prob.detach() + self.target_entropy)).mean()
        self.alpha_opt.zero_grad()
        alpha_loss.backward()
        self.alpha_opt.step()
        with torch.no_grad():
            pairs = zip(self.targets.parameters(), self.critics.parameters(), strict=True)
            for target, source in pairs:
                target.lerp_(source, 0.005)
