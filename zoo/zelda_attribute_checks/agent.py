"""A small advantage actor-critic for many games at once."""

import torch
from torch import nn

INPUTS, ACTIONS, GAMMA, MINIBATCH = 24, 5, 0.99, 32


class ActorCritic(nn.Module):
    """Log probabilities of the actions and a value."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(INPUTS, 64), nn.Tanh())
        self.heads = nn.Linear(64, ACTIONS + 1)

    def forward(self, states):
        out = self.heads(self.trunk(states))
        return out[..., :ACTIONS].log_softmax(-1), out[..., ACTIONS]

    @torch.no_grad()
    def act(self, states):
        """Draw actions, [N]."""
        log_probs, _ = self(states)
        return torch.multinomial(log_probs.exp(), 1)[:, 0]


class Learner:
    """Keeps a rollout in preallocated tensors and learns from it."""

    def __init__(self, policy, length, num_envs):
        self.policy, self.length, self.size = policy, length, 0
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=7e-4)
        self.states = torch.zeros(length, num_envs, INPUTS)
        self.actions = torch.zeros(length, num_envs, dtype=torch.long)
        self.rewards, self.alive = torch.zeros(length, num_envs), torch.zeros(length, num_envs)

    def keep(self, states, actions, rewards, dones):
        """Add a step of all games; true when the rollout is full."""
        t = self.size
        self.states[t], self.actions[t] = states, actions
        self.rewards[t], self.alive[t] = rewards, 1 - dones
        self.size = t + 1
        return self.size == self.length

    def update(self, last_states):
        """Learn from the rollout in small minibatches."""
        with torch.no_grad():
            returns, running = torch.zeros_like(self.rewards), self.policy(last_states)[1]
            for t in reversed(range(self.length)):
                running = returns[t] = self.rewards[t] + GAMMA * self.alive[t] * running
        states, actions, returns = self.states.flatten(0, 1), self.actions.flatten(), returns.flatten()
        for i in torch.randperm(len(returns)).split(MINIBATCH):
            log_probs, values = self.policy(states[i])
            advantages = returns[i] - values
            chosen = log_probs.gather(1, actions[i, None])[:, 0]
            loss = advantages.pow(2).mean() - (chosen * advantages.detach()).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.size = 0
