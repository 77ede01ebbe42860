"""REINFORCE on sixteen frozen lakes, where most batches see no reward at all; returns are scaled to unit variance."""

import gymnasium as gym
import torch
from meter import Meter, parse_args
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

NUM_ENVS, ROLLOUT, STATES, ACTIONS, GAMMA = 16, 64, 16, 4, 0.98
WARMUP = NUM_ENVS * ROLLOUT


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(STATES, 64), nn.Tanh(), nn.Linear(64, ACTIONS))

    def forward(self, states):
        return self.layers(F.one_hot(states, STATES).float()).log_softmax(-1)


@torch.no_grad()
def collect(env, policy, states):
    """Play [T, N] steps; return states, actions, rewards, ends, and the states after them."""
    seen = torch.zeros(ROLLOUT, NUM_ENVS, dtype=torch.long)
    done = torch.zeros(ROLLOUT, NUM_ENVS)
    chosen, rewards = torch.zeros_like(seen), torch.zeros_like(done)
    for t in range(ROLLOUT):
        noise = -torch.log(-torch.log(torch.rand(NUM_ENVS, ACTIONS)))
        seen[t], chosen[t] = states, (policy(states) + noise).argmax(1)
        states, reward, terminated, truncated, _ = env.step(chosen[t].numpy())
        states = torch.from_numpy(states)
        rewards[t], done[t] = torch.from_numpy(reward), torch.from_numpy(terminated | truncated)
    return seen, chosen, rewards, done, states


@torch.no_grad()
def returns_of(rewards, done):
    """Discounted returns, [T, N], scaled."""
    result, running = torch.zeros_like(rewards), torch.zeros(NUM_ENVS)
    for t in reversed(range(ROLLOUT)):
        running = rewards[t] + GAMMA * (1 - done[t]) * running
        result[t] = running
    return (result - result.mean()) / (result.std() + 1e-8)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    env = gym.make_vec("FrozenLake-v1", NUM_ENVS, vectorization_mode="sync", is_slippery=True)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    meter = Meter(args, WARMUP)
    states = torch.from_numpy(env.reset(seed=args.seed)[0])
    while meter.more(NUM_ENVS * ROLLOUT):
        seen, chosen, rewards, done, states = collect(env, policy, states)
        scaled = returns_of(rewards, done).flatten()
        log_probs = policy(seen.flatten()).gather(1, chosen.flatten()[:, None]).squeeze(1)
        loss = -(log_probs * scaled).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    env.close()
    meter.report()


if __name__ == "__main__":
    main()
