"""PPO on 16 robots with distance sensors.

The rollout has its full size from the start, and each step is written into its row.
"""

import numpy as np
import torch
from lidar import BEAMS, VectorLidar
from meter import Meter, parse_args
from torch import nn

torch.set_num_threads(1)

NUM_ENVS, ROLLOUT, EPOCHS, MINIBATCH = 16, 256, 2, 256
GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2
WARMUP = NUM_ENVS * ROLLOUT


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(BEAMS, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.heads = nn.Linear(64, 4)

    def forward(self, states):
        out = self.heads(self.trunk(states))
        return out[:, :3].log_softmax(-1), out[:, 3]


class Rollout:
    """Steps of all environments, [T, N, ...]."""

    def __init__(self):
        self.states = torch.zeros(ROLLOUT, NUM_ENVS, BEAMS)
        self.actions = torch.zeros(ROLLOUT, NUM_ENVS, dtype=torch.long)
        self.log_probs, self.values = torch.zeros(ROLLOUT, NUM_ENVS), torch.zeros(ROLLOUT, NUM_ENVS)
        self.rewards, self.dones = torch.zeros(ROLLOUT, NUM_ENVS), torch.zeros(ROLLOUT, NUM_ENVS)
        self.size = 0

    def add(self, states, actions, log_probs, values, rewards, dones):
        t = self.size
        self.states[t], self.actions[t], self.log_probs[t] = states, actions, log_probs
        self.values[t], self.rewards[t], self.dones[t] = values, rewards, dones
        self.size = t + 1


@torch.no_grad()
def collect(env, policy, states):
    """Make a rollout; returns it, the states after it and their values."""
    rollout = Rollout()
    for _ in range(ROLLOUT):
        log_probs, values = policy(states)
        actions = torch.multinomial(log_probs.exp(), 1)
        next_states, rewards, crashed, late, _ = env.step(actions[:, 0].numpy())
        log_probs = log_probs.gather(1, actions)[:, 0]
        dones = torch.from_numpy(crashed | late).float()
        rollout.add(states, actions[:, 0], log_probs, values, torch.from_numpy(rewards), dones)
        states = torch.from_numpy(next_states)
    return rollout, states, policy(states)[1]


@torch.no_grad()
def advantages(rollout, last_value):
    """Generalised advantage estimates, [T, N]."""
    alive = (1 - rollout.dones).numpy()
    values = torch.vstack((rollout.values, last_value)).numpy()
    deltas = rollout.rewards.numpy() + GAMMA * values[1:] * alive - values[:-1]
    result, running = np.zeros_like(deltas), np.zeros(NUM_ENVS, np.float32)
    for t in reversed(range(ROLLOUT)):
        running = deltas[t] + GAMMA * LAMBDA * alive[t] * running
        result[t] = running
    return torch.from_numpy(result)


def update(policy, optimizer, rollout, last_value):
    """A few epochs of clipped PPO."""
    adv = advantages(rollout, last_value)
    returns = (adv + rollout.values).flatten()
    adv = ((adv - adv.mean()) / (adv.std() + 1e-8)).flatten()
    states, actions = rollout.states.flatten(0, 1), rollout.actions.flatten()
    old_log_probs = rollout.log_probs.flatten()
    for _ in range(EPOCHS):
        for i in torch.randperm(len(adv)).split(MINIBATCH):
            log_probs, values = policy(states[i])
            ratio = (log_probs.gather(1, actions[i, None])[:, 0] - old_log_probs[i]).exp()
            gain = torch.min(ratio * adv[i], ratio.clamp(1 - CLIP, 1 + CLIP) * adv[i]).mean()
            loss = 0.5 * (values - returns[i]).pow(2).mean() - gain
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    env = VectorLidar(NUM_ENVS, args.seed)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    meter = Meter(args, WARMUP)
    states = torch.from_numpy(env.reset())
    while meter.more(NUM_ENVS * ROLLOUT):
        rollout, states, last_value = collect(env, policy, states)
        update(policy, optimizer, rollout, last_value)
    meter.report()


if __name__ == "__main__":
    main()
