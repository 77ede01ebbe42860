"""REINFORCE on CartPole: an episode is a Python list, and the returns are computed in a loop."""

import gymnasium as gym
import numpy as np
import torch
from progress import tick

MAX_STEPS = 100


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(4, 128)
        self.dropout = torch.nn.Dropout(p=0.2)
        self.fc2 = torch.nn.Linear(128, 2)

    def forward(self, x):
        x = torch.relu(self.dropout(self.fc1(x)))
        return torch.softmax(self.fc2(x), dim=-1)


def run_episode(env, net):
    episode = []
    obs, _ = env.reset()
    for _ in range(MAX_STEPS):
        probs = net(torch.from_numpy(obs).float())
        m = torch.distributions.Categorical(probs)
        action = m.sample()
        obs, reward, done, _, _ = env.step(action.item())
        episode.append((m.log_prob(action), reward))
        if done:
            break
    return episode


def discounted(rewards, gamma=0.99):
    result = []
    total = 0
    for r in rewards[::-1]:
        total = r + gamma * total
        result.insert(0, total)
    return result


torch.manual_seed(543)
env = gym.make("CartPole-v1", max_episode_steps=MAX_STEPS)
env.reset(seed=543)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-4)

while True:
    episode = run_episode(env, net)
    returns = torch.tensor(discounted([r for _, r in episode]))
    returns = (returns - returns.mean()) / (returns.std() + np.finfo(np.float32).eps.item())
    loss = torch.stack([-log_prob * R for (log_prob, _), R in zip(episode, returns, strict=True)]).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    tick(len(episode))
