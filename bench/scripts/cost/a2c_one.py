"""Online advantage actor-critic on CartPole: one transition, one update."""

import gymnasium as gym
import torch
import torch.nn as nn
import torch.optim as optim
from progress import tick
from torch.distributions import Categorical

gamma = 0.99
lr = 3e-4


class ActorCritic(nn.Module):
    def __init__(self, n_obs, n_actions):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_obs, 64), nn.ReLU())
        self.pi = nn.Linear(64, n_actions)
        self.v = nn.Linear(64, 1)

    def forward(self, x):
        h = self.body(x)
        return self.pi(h), self.v(h)


def train():
    torch.manual_seed(0)
    env = gym.make("CartPole-v1")
    model = ActorCritic(env.observation_space.shape[0], env.action_space.n)
    optimizer = optim.Adam(model.parameters(), lr=lr)
    state, _ = env.reset(seed=0)
    episode_rewards, ep_reward = [], 0

    while True:
        state_t = torch.FloatTensor(state).unsqueeze(0)
        logits, value = model(state_t)
        dist = Categorical(logits=logits)
        action = dist.sample()
        next_state, reward, terminated, truncated, _ = env.step(action.item())
        ep_reward += reward

        with torch.no_grad():
            _, next_value = model(torch.FloatTensor(next_state).unsqueeze(0))
        advantage = reward + gamma * next_value * (1 - int(terminated)) - value
        actor_loss = -dist.log_prob(action) * advantage.detach()
        critic_loss = advantage.pow(2)
        loss = (actor_loss + 0.5 * critic_loss - 0.01 * dist.entropy()).mean()

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        state = next_state
        if terminated or truncated:
            episode_rewards = [*episode_rewards[-99:], ep_reward]
            ep_reward = 0
            state, _ = env.reset()
        tick()


train()
