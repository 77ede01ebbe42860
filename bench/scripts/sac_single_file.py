"""Soft actor-critic on Pendulum in a single file: two critics, learned temperature, one update a step."""

import random
import sys

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim

torch.set_num_threads(1)

GAMMA = 0.99
TAU = 0.005
BATCH = 256
LEARNING_STARTS = 500
POLICY_EVERY = 2


class Critic(nn.Module):
    def __init__(self, env):
        super().__init__()
        size = int(np.prod(env.observation_space.shape) + np.prod(env.action_space.shape))
        self.fc1 = nn.Linear(size, 256)
        self.fc2 = nn.Linear(256, 256)
        self.fc3 = nn.Linear(256, 1)

    def forward(self, obs, action):
        x = torch.cat([obs, action], 1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


class Actor(nn.Module):
    def __init__(self, env):
        super().__init__()
        actions = int(np.prod(env.action_space.shape))
        self.fc1 = nn.Linear(int(np.prod(env.observation_space.shape)), 256)
        self.fc2 = nn.Linear(256, 256)
        self.mean = nn.Linear(256, actions)
        self.log_std = nn.Linear(256, actions)
        high, low = env.action_space.high, env.action_space.low
        self.register_buffer("scale", torch.tensor((high - low) / 2.0, dtype=torch.float32))
        self.register_buffer("bias", torch.tensor((high + low) / 2.0, dtype=torch.float32))

    def forward(self, obs):
        x = F.relu(self.fc1(obs))
        x = F.relu(self.fc2(x))
        log_std = torch.tanh(self.log_std(x))
        return self.mean(x), -5 + 0.5 * 7 * (log_std + 1)

    def get_action(self, obs):
        mean, log_std = self(obs)
        normal = torch.distributions.Normal(mean, log_std.exp())
        drawn = normal.rsample()
        squashed = torch.tanh(drawn)
        log_prob = normal.log_prob(drawn) - torch.log(self.scale * (1 - squashed.pow(2)) + 1e-6)
        return squashed * self.scale + self.bias, log_prob.sum(1, keepdim=True)


class Replay:
    def __init__(self, env, capacity):
        self.obs = np.zeros((capacity, *env.observation_space.shape), np.float32)
        self.next_obs = np.zeros_like(self.obs)
        self.actions = np.zeros((capacity, *env.action_space.shape), np.float32)
        self.rewards = np.zeros(capacity, np.float32)
        self.terminated = np.zeros(capacity, np.float32)
        self.capacity, self.at, self.size = capacity, 0, 0

    def add(self, obs, next_obs, action, reward, terminated):
        i = self.at
        self.obs[i], self.next_obs[i], self.actions[i] = obs, next_obs, action
        self.rewards[i], self.terminated[i] = reward, terminated
        self.at = (i + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, batch_size):
        i = np.random.randint(0, self.size, batch_size)
        columns = (self.obs, self.next_obs, self.actions, self.rewards, self.terminated)
        return [torch.as_tensor(column[i]) for column in columns]


def main(steps):  # noqa: PLR0915  one flat function is how such scripts are written
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    env = gym.make("Pendulum-v1")
    env.action_space.seed(1)
    actor = Actor(env)
    qf1, qf2, qf1_target, qf2_target = Critic(env), Critic(env), Critic(env), Critic(env)
    qf1_target.load_state_dict(qf1.state_dict())
    qf2_target.load_state_dict(qf2.state_dict())
    q_optimizer = optim.Adam([*qf1.parameters(), *qf2.parameters()], lr=1e-3)
    actor_optimizer = optim.Adam(actor.parameters(), lr=3e-4)
    target_entropy = -float(np.prod(env.action_space.shape))
    log_alpha = torch.zeros(1, requires_grad=True)
    alpha = log_alpha.exp().item()
    a_optimizer = optim.Adam([log_alpha], lr=1e-3)
    rb = Replay(env, 100_000)

    obs, _ = env.reset(seed=1)
    episode_return = 0.0
    for step in range(steps):
        if step < LEARNING_STARTS:
            action = env.action_space.sample()
        else:
            with torch.no_grad():
                action, _ = actor.get_action(torch.as_tensor(obs, dtype=torch.float32).unsqueeze(0))
            action = action[0].numpy()
        next_obs, reward, terminated, truncated, _ = env.step(action)
        rb.add(obs, next_obs, action, reward, terminated)
        episode_return += float(reward)
        obs = next_obs
        if terminated or truncated:
            print(f"step {step} return {episode_return:.1f}")
            obs, _ = env.reset()
            episode_return = 0.0
        if step < LEARNING_STARTS:
            continue

        b_obs, b_next_obs, b_actions, b_rewards, b_terminated = rb.sample(BATCH)
        with torch.no_grad():
            next_actions, next_log_pi = actor.get_action(b_next_obs)
            smaller = torch.min(qf1_target(b_next_obs, next_actions), qf2_target(b_next_obs, next_actions))
            next_value = (smaller - alpha * next_log_pi).view(-1)
            goal = b_rewards + (1 - b_terminated) * GAMMA * next_value
        qf1_loss = F.mse_loss(qf1(b_obs, b_actions).view(-1), goal)
        qf2_loss = F.mse_loss(qf2(b_obs, b_actions).view(-1), goal)
        q_loss = qf1_loss + qf2_loss
        q_optimizer.zero_grad()
        q_loss.backward()
        q_optimizer.step()

        if step % POLICY_EVERY == 0:
            for _ in range(POLICY_EVERY):
                pi, log_pi = actor.get_action(b_obs)
                smaller = torch.min(qf1(b_obs, pi), qf2(b_obs, pi))
                actor_loss = (alpha * log_pi - smaller).mean()
                actor_optimizer.zero_grad()
                actor_loss.backward()
                actor_optimizer.step()
                with torch.no_grad():
                    _, log_pi = actor.get_action(b_obs)
                alpha_loss = (-log_alpha.exp() * (log_pi + target_entropy)).mean()
                a_optimizer.zero_grad()
                alpha_loss.backward()
                a_optimizer.step()
                alpha = log_alpha.exp().item()

        for critic, target in ((qf1, qf1_target), (qf2, qf2_target)):
            for param, slow in zip(critic.parameters(), target.parameters(), strict=True):
                slow.data.copy_(TAU * param.data + (1 - TAU) * slow.data)


if __name__ == "__main__":
    main(int(sys.argv[1]))
