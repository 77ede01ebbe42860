"""SAC-like actor-critic on eight Pendulums, with checkpoints.

With checkpoints on, the networks and the optimisers are saved after every step.
"""

import os
import tempfile

import gymnasium as gym
import torch
from meter import Meter, parse_args
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

NUM_ENVS, BATCH, CAPACITY = 8, 128, 50_000
WARMUP = 100 * NUM_ENVS


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))


class ReplayBuffer:
    """A ring of transitions in preallocated tensors."""

    def __init__(self, capacity):
        self.states, self.next_states = torch.zeros(capacity, 3), torch.zeros(capacity, 3)
        self.actions, self.rewards = torch.zeros(capacity, 1), torch.zeros(capacity)
        self.capacity, self.position, self.size = capacity, 0, 0

    def push(self, states, actions, rewards, next_states):
        i = (self.position + torch.arange(len(states))) % self.capacity
        self.states[i], self.actions[i] = states, actions
        self.rewards[i], self.next_states[i] = rewards, next_states
        self.position = (self.position + len(i)) % self.capacity
        self.size = min(self.size + len(i), self.capacity)

    def sample(self, batch_size):
        i = torch.randint(self.size, (batch_size,))
        return self.states[i], self.actions[i], self.rewards[i], self.next_states[i]


class Agent:
    """DDPG with a soft target."""

    def __init__(self):
        self.actor, self.critic, self.target = mlp(3, 1), mlp(4, 1), mlp(4, 1)
        self.target.load_state_dict(self.critic.state_dict())
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-3)

    @torch.no_grad()
    def act(self, states):
        return (2 * self.actor(states).tanh() + 0.2 * torch.randn(len(states), 1)).clamp(-2, 2)

    def update(self, states, actions, rewards, next_states):
        with torch.no_grad():
            next_actions = 2 * self.actor(next_states).tanh()
            target = rewards + 0.98 * self.target(torch.hstack((next_states, next_actions))).squeeze(1)
        loss = F.mse_loss(self.critic(torch.hstack((states, actions))).squeeze(1), target)
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        self.critic.requires_grad_(False)
        gain = self.critic(torch.hstack((states, 2 * self.actor(states).tanh()))).mean()
        self.actor_optimizer.zero_grad()
        (-gain).backward()
        self.actor_optimizer.step()
        self.critic.requires_grad_(True)
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.critic.parameters()), 0.01)

    def save(self, folder):
        """Write a checkpoint, replacing the last one."""
        state = {
            "actor": self.actor.state_dict(),
            "critic": self.critic.state_dict(),
            "actor_optimizer": self.actor_optimizer.state_dict(),
            "critic_optimizer": self.critic_optimizer.state_dict(),
        }
        torch.save(state, os.path.join(folder, "agent.pt"))


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    env = gym.make_vec("Pendulum-v1", num_envs=NUM_ENVS, vectorization_mode="sync")
    agent, replay = Agent(), ReplayBuffer(CAPACITY)
    meter = Meter(args, WARMUP)
    folder = tempfile.TemporaryDirectory()
    states = torch.from_numpy(env.reset(seed=args.seed)[0])
    step = 0
    while meter.more(NUM_ENVS):
        actions = agent.act(states)
        next_states, rewards, _, _, _ = env.step(actions.numpy())
        next_states = torch.from_numpy(next_states)
        replay.push(states, actions, torch.from_numpy(rewards).float(), next_states)
        states = next_states
        agent.update(*replay.sample(BATCH))
        step += 1
        agent.save(folder.name)
    env.close()
    folder.cleanup()
    meter.report()


if __name__ == "__main__":
    main()
