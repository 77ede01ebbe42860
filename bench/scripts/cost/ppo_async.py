"""PPO on Acrobot with two environment processes (Gymnasium's AsyncVectorEnv)."""

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from progress import tick
from torch.distributions import Categorical

N_ENVS, N_STEPS, N_EPOCHS, GAMMA, CLIP = 2, 32, 2, 0.99, 0.2


class Policy(nn.Module):
    def __init__(self, obs_size, n_actions, hidden=64):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(obs_size, hidden), nn.Tanh(), nn.Linear(hidden, n_actions))
        self.critic = nn.Sequential(nn.Linear(obs_size, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def act(self, obs):
        dist = Categorical(logits=self.actor(obs))
        action = dist.sample()
        return action, dist.log_prob(action)


def make_env():
    return gym.make("Acrobot-v1")


def collect(envs, policy, obs):
    rollout = {"obs": [], "actions": [], "logp": [], "rewards": [], "dones": []}
    for _ in range(N_STEPS):
        obs_t = torch.as_tensor(obs, dtype=torch.float32)
        with torch.no_grad():
            actions, logp = policy.act(obs_t)
        obs, rewards, terminated, truncated, _ = envs.step(actions.numpy())
        rollout["obs"].append(obs_t)
        rollout["actions"].append(actions)
        rollout["logp"].append(logp)
        rollout["rewards"].append(torch.as_tensor(rewards, dtype=torch.float32))
        rollout["dones"].append(torch.as_tensor(np.logical_or(terminated, truncated), dtype=torch.float32))
    return obs, {name: torch.stack(rows) for name, rows in rollout.items()}


def learn(policy, optimizer, data, last_obs):
    with torch.no_grad():
        ret = policy.critic(torch.as_tensor(last_obs, dtype=torch.float32)).squeeze(-1)
        returns = torch.zeros_like(data["rewards"])
        for t in reversed(range(N_STEPS)):
            ret = data["rewards"][t] + GAMMA * ret * (1 - data["dones"][t])
            returns[t] = ret
        advantages = returns - policy.critic(data["obs"]).squeeze(-1)
    for _ in range(N_EPOCHS):
        dist = Categorical(logits=policy.actor(data["obs"]))
        ratio = (dist.log_prob(data["actions"]) - data["logp"]).exp()
        surrogate = torch.min(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
        value_loss = (policy.critic(data["obs"]).squeeze(-1) - returns).pow(2).mean()
        loss = -surrogate.mean() + 0.5 * value_loss - 0.01 * dist.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()


if __name__ == "__main__":
    torch.manual_seed(7)
    envs = gym.vector.AsyncVectorEnv([make_env] * N_ENVS)
    policy = Policy(envs.single_observation_space.shape[0], envs.single_action_space.n)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    obs, _ = envs.reset(seed=7)
    while True:
        obs, data = collect(envs, policy, obs)
        learn(policy, optimizer, data, obs)
        tick(N_ENVS * N_STEPS)
