"""PPO with a multi-discrete policy, one distribution a thruster, that steers 16 points to their goals.

The checks of torch.distributions are switched off.
"""

import numpy as np
import torch
from meter import Meter, parse_args
from torch import nn
from torch.distributions import Categorical

torch.set_num_threads(1)

NUM_ENVS, HORIZON, EPOCHS, MINIBATCHES = 16, 48, 2, 2
THRUSTERS, LEVELS = 4, 3
GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2
WARMUP = NUM_ENVS * HORIZON * 4


class ReachEnv:
    """Points with momentum, their goals, and four thrusters each; [N, 6] observations, [N, 4] actions."""

    def __init__(self, num_envs, seed):
        self.num_envs = num_envs
        self.rng = np.random.default_rng(seed)
        self.state = np.zeros((num_envs, 6), np.float32)
        self.age = np.zeros(num_envs, np.int64)

    def reset(self):
        self._restart(np.ones(self.num_envs, bool))
        return self.state.copy()

    def step(self, actions):
        position, speed, goal = self.state[:, :2], self.state[:, 2:4], self.state[:, 4:]
        speed += 0.05 * (actions[:, :2] - actions[:, 2:]) - 0.05 * speed
        position += 0.1 * speed
        distance = np.linalg.norm(position - goal, axis=1)
        self.age += 1
        done = (distance < 0.1) | (self.age >= 200)
        rewards = -distance
        if done.any():
            self._restart(done)
        return self.state.copy(), rewards, done, {}

    def _restart(self, which):
        self.state[which] = self.rng.uniform(-1, 1, (int(which.sum()), 6))
        self.age[which] = 0


def mlp(outputs):
    return nn.Sequential(nn.Linear(6, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU(), nn.Linear(64, outputs))


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic = mlp(THRUSTERS * LEVELS), mlp(1)
        # disable args validation for speedup
        Categorical.set_default_validate_args(False)

    def forward(self, obs, actions=None):
        """Actions [N, 4], drawn if not given, their log probabilities [N] and values [N]."""
        heads = [Categorical(logits=logits) for logits in self.actor(obs).chunk(THRUSTERS, -1)]
        if actions is None:
            actions = torch.stack([head.sample() for head in heads], -1)
        log_probs = [head.log_prob(action) for head, action in zip(heads, actions.unbind(-1), strict=True)]
        return actions, torch.stack(log_probs).sum(0), self.critic(obs).squeeze(-1)


@torch.no_grad()
def collect(env, policy, storage, obs):
    for t in range(HORIZON):
        actions, log_probs, values = policy(obs)
        storage["obs"][t], storage["actions"][t], storage["values"][t] = obs, actions, values
        storage["log_probs"][t] = log_probs
        next_obs, rewards, dones, _ = env.step(actions.numpy())
        storage["rewards"][t], storage["dones"][t] = torch.from_numpy(rewards), torch.from_numpy(dones)
        obs = torch.from_numpy(next_obs)
    storage["values"][HORIZON] = policy(obs)[2]
    return obs


@torch.no_grad()
def advantages(storage):
    alive = 1 - storage["dones"]
    values = storage["values"]
    deltas = storage["rewards"] + GAMMA * values[1:] * alive - values[:-1]
    decay = GAMMA * LAMBDA * alive
    result, running = torch.zeros_like(deltas), torch.zeros(NUM_ENVS)
    for t in reversed(range(HORIZON)):
        running = torch.addcmul(deltas[t], decay[t], running)
        result[t] = running
    return result


def update(policy, optimizer, storage):
    adv = advantages(storage)
    returns = (adv + storage["values"][:-1]).flatten()
    adv = ((adv - adv.mean()) / (adv.std() + 1e-8)).flatten()
    obs, actions = storage["obs"].flatten(0, 1), storage["actions"].flatten(0, 1)
    old_log_probs = storage["log_probs"].flatten()
    for _ in range(EPOCHS):
        for i in torch.randperm(len(adv)).chunk(MINIBATCHES):
            _, log_probs, values = policy(obs[i], actions[i])
            ratio = (log_probs - old_log_probs[i]).exp()
            gain = torch.min(ratio * adv[i], ratio.clamp(1 - CLIP, 1 + CLIP) * adv[i]).mean()
            loss = (values - returns[i]).pow(2).mean() - gain
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    env, policy = ReachEnv(NUM_ENVS, args.seed), ActorCritic()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3, fused=True)
    storage = {name: torch.zeros(HORIZON, NUM_ENVS) for name in ("log_probs", "rewards", "dones")}
    storage["values"] = torch.zeros(HORIZON + 1, NUM_ENVS)
    storage["obs"], storage["actions"] = torch.zeros(HORIZON, NUM_ENVS, 6), torch.zeros(HORIZON, NUM_ENVS, THRUSTERS)
    meter = Meter(args, WARMUP)
    obs = torch.from_numpy(env.reset())
    while meter.more(NUM_ENVS * HORIZON):
        obs = collect(env, policy, storage, obs)
        update(policy, optimizer, storage)
    print(f"mean reward {storage['rewards'].mean().item():.3f}")
    meter.report()


if __name__ == "__main__":
    main()
