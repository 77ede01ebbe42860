"""REINFORCE with a baseline on whole episodes; the loss is compiled for fixed shapes.

Each batch is as long as its episodes are together, so hardly two batches have the same shape. Torch warned
that it would stop compiling after eight shapes; the limit was raised.
"""

import gymnasium as gym
import torch
from meter import Meter, parse_args
from torch import nn

torch.set_num_threads(1)
torch._dynamo.config.recompile_limit = 1_000
torch._dynamo.config.accumulated_recompile_limit = 10_000

EPISODES, LONGEST, GAMMA = 32, 500, 0.99
WARMUP = 2_000


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.actor, self.critic = nn.Linear(64, 2), nn.Linear(64, 1)

    def forward(self, states):
        hidden = self.body(states)
        return self.actor(hidden).log_softmax(-1), self.critic(hidden).squeeze(-1)


policy = Policy()


def loss_of(states, actions, returns):
    log_probs, values = policy(states)
    chosen = log_probs.gather(1, actions[:, None]).squeeze(1)
    entropy = -(log_probs.exp() * log_probs).sum(1).mean()
    return -(chosen * (returns - values).detach()).mean() + 0.5 * (returns - values).pow(2).mean() - 0.01 * entropy


compiled_loss = torch.compile(loss_of, backend="eager", dynamic=True)


class Batch:
    """Room for the longest batch there can be; a batch is the part that was written."""

    def __init__(self):
        self.states = torch.zeros(EPISODES * LONGEST, 4)
        self.actions = torch.zeros(EPISODES * LONGEST, dtype=torch.long)
        self.returns = torch.zeros(EPISODES * LONGEST)


def play(env, batch, begin, seed):
    """Write one episode into the batch from `begin` on; return where it ends."""
    at, done, rewards = begin, False, []
    state, _ = env.reset(seed=seed)
    while not done:
        batch.states[at] = torch.from_numpy(state)
        batch.actions[at] = torch.multinomial(policy(batch.states[at])[0].exp(), 1)
        state, reward, terminated, truncated, _ = env.step(int(batch.actions[at]))
        rewards.append(reward)
        done = terminated or truncated
        at += 1
    batch.returns[begin:at] = returns_of(rewards)
    return at


def returns_of(rewards):
    """Discounted returns, as one product with the matrix of discounts."""
    times = torch.arange(len(rewards), dtype=torch.float32)
    discounts = (GAMMA ** (times[None] - times[:, None])).triu()
    return discounts @ torch.tensor(rewards) / 50


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    env = gym.make("CartPole-v1", disable_env_checker=True)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-4)
    meter = Meter(args, WARMUP)
    batch, seed, more = Batch(), args.seed, True
    while more:
        end = 0
        with torch.no_grad():
            for _ in range(EPISODES):
                begin, seed = end, seed + 1
                end = play(env, batch, begin, seed)
                more = meter.more(end - begin) and more
        loss = compiled_loss(batch.states[:end], batch.actions[:end], batch.returns[:end])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    meter.report()


if __name__ == "__main__":
    main()
