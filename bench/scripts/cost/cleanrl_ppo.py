"""PPO in a single file, after CleanRL: four CartPoles in a SyncVectorEnv, tensors for storage, minibatches."""

import random
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from progress import tick
from torch.distributions.categorical import Categorical


@dataclass
class Args:
    seed: int = 1
    num_envs: int = 4
    num_steps: int = 32
    num_minibatches: int = 4
    update_epochs: int = 2
    learning_rate: float = 2.5e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_coef: float = 0.2


def layer_init(layer, std=2**0.5):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, 0.0)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(4, 64)), nn.Tanh(), layer_init(nn.Linear(64, 1), 1.0))
        self.actor = nn.Sequential(layer_init(nn.Linear(4, 64)), nn.Tanh(), layer_init(nn.Linear(64, 2), 0.01))

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


args = Args()
random.seed(args.seed)
np.random.seed(args.seed)
torch.manual_seed(args.seed)
envs = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(args.num_envs)])
agent = Agent()
optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
shape = (args.num_steps, args.num_envs)
obs = torch.zeros((*shape, 4))
actions, logprobs, rewards, dones, values = (torch.zeros(shape) for _ in range(5))
next_obs, next_done = torch.Tensor(envs.reset(seed=args.seed)[0]), torch.zeros(args.num_envs)

while True:
    for step in range(args.num_steps):
        obs[step], dones[step] = next_obs, next_done
        with torch.no_grad():
            action, logprobs[step], _, value = agent.get_action_and_value(next_obs)
        actions[step], values[step] = action, value.flatten()
        next_obs, reward, terminations, truncations, infos = envs.step(action.cpu().numpy())
        rewards[step] = torch.tensor(reward).view(-1)
        next_obs, next_done = torch.Tensor(next_obs), torch.Tensor(np.logical_or(terminations, truncations))

    with torch.no_grad():
        next_value, advantages, lastgaelam = agent.critic(next_obs).flatten(), torch.zeros_like(rewards), 0
        for t in reversed(range(args.num_steps)):
            nextnonterminal = 1.0 - (next_done if t == args.num_steps - 1 else dones[t + 1])
            nextvalues = next_value if t == args.num_steps - 1 else values[t + 1]
            delta = rewards[t] + args.gamma * nextvalues * nextnonterminal - values[t]
            advantages[t] = lastgaelam = delta + args.gamma * args.gae_lambda * nextnonterminal * lastgaelam
        returns = advantages + values

    b = [x.reshape(-1, *x.shape[2:]) for x in (obs, actions, logprobs, advantages, returns)]
    for _ in range(args.update_epochs):
        for mb_inds in np.array_split(np.random.permutation(len(b[0])), args.num_minibatches):
            b_obs, b_actions, b_logprobs, b_advantages, b_returns = (x[mb_inds] for x in b)
            _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs, b_actions)
            ratio = (newlogprob - b_logprobs).exp()
            adv = (b_advantages - b_advantages.mean()) / (b_advantages.std() + 1e-8)
            pg_loss = torch.max(-adv * ratio, -adv * ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)).mean()
            loss = pg_loss - 0.01 * entropy.mean() + 0.25 * ((newvalue.view(-1) - b_returns) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    tick(args.num_envs * args.num_steps)
