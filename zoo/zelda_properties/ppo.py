"""PPO for one environment with an information vector, small enough for one core."""

import torch
from torch import nn
from torch.distributions import Categorical

ROLLOUT, EPOCHS, MINIBATCH = 256, 2, 64


class Policy(nn.Module):
    """Information vectors [B, features] to action logits and value."""

    def __init__(self, features: int, actions: int):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.logits = nn.Linear(64, actions)
        self.value = nn.Linear(64, 1)

    def forward(self, observations):
        h = self.body(observations)
        return self.logits(h), self.value(h).squeeze(1)


class Rollout:
    """Preallocated storage for one rollout."""

    def __init__(self, features: int):
        self.observations = torch.zeros(ROLLOUT, features)
        self.actions = torch.zeros(ROLLOUT, dtype=torch.long)
        self.log_probs, self.values = torch.zeros(ROLLOUT), torch.zeros(ROLLOUT + 1)
        self.rewards, self.dones = torch.zeros(ROLLOUT), torch.zeros(ROLLOUT)


@torch.no_grad()
def act(policy, rollout, t, observation):
    """Choose an action and write the step's policy side into the rollout."""
    logits, value = policy(observation[None])
    log_probs = logits.log_softmax(1)[0]
    action = int(torch.multinomial(log_probs.exp(), 1))
    rollout.observations[t] = observation
    rollout.actions[t] = action
    rollout.log_probs[t] = log_probs[action]
    rollout.values[t] = value[0]
    return action


def advantages(rollout, gamma=0.99, lam=0.95):
    """Generalised advantage estimates, [T]."""
    alive = 1 - rollout.dones
    deltas = (rollout.rewards + gamma * rollout.values[1:] * alive - rollout.values[:-1]).tolist()
    decay = (gamma * lam * alive).tolist()
    result, running = [0.0] * ROLLOUT, 0.0
    for t in reversed(range(ROLLOUT)):
        running = deltas[t] + decay[t] * running
        result[t] = running
    return torch.tensor(result)


def update(policy, optimizer, rollout):
    """A few epochs of clipped PPO on the rollout."""
    adv = advantages(rollout)
    returns = adv + rollout.values[:-1]
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for _ in range(EPOCHS):
        for index in torch.randperm(ROLLOUT).split(MINIBATCH):
            logits, values = policy(rollout.observations[index])
            dist = Categorical(logits=logits, validate_args=False)
            ratio = (dist.log_prob(rollout.actions[index]) - rollout.log_probs[index]).exp()
            gain = torch.min(ratio * adv[index], ratio.clamp(0.8, 1.2) * adv[index]).mean()
            value_loss = (values - returns[index]).pow(2).mean()
            loss = 0.5 * value_loss - gain - 0.01 * dist.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()
