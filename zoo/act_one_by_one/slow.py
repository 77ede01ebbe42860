"""DQN on 16 CartPoles, made from a script for one environment by adding a loop over the environments.

The network is asked for one action at a time.
"""

import random

import gymnasium as gym
import numpy as np
import torch
from meter import Meter, parse_args
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

NUM_ENVS = 16
BATCH = 128
CAPACITY = 50_000
EPSILON = 0.05
WARMUP = 100 * NUM_ENVS


def make_network():
    return nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))


class ReplayBuffer:
    """Rings of transitions, one array a field."""

    def __init__(self, capacity):
        self.states, self.next_states = np.zeros((2, capacity, 4), np.float32)
        self.rewards, self.dones = np.zeros((2, capacity), np.float32)
        self.actions = np.zeros(capacity, np.int64)
        self.capacity, self.position, self.size = capacity, 0, 0

    def push(self, states, actions, rewards, next_states, dones):
        i = (self.position + np.arange(len(states))) % self.capacity
        self.states[i], self.actions[i], self.rewards[i] = states, actions, rewards
        self.next_states[i], self.dones[i] = next_states, dones
        self.position = (self.position + len(i)) % self.capacity
        self.size = min(self.size + len(i), self.capacity)

    def sample(self, batch_size):
        i = np.random.randint(0, self.size, batch_size)
        fields = (self.states, self.actions, self.rewards, self.next_states, self.dones)
        return tuple(torch.from_numpy(field[i]) for field in fields)


class Agent:
    def __init__(self):
        self.q, self.target = make_network(), make_network()
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=5e-4, fused=True)

    @torch.no_grad()
    def act(self, states):
        actions = np.zeros(NUM_ENVS, np.int64)
        for i in range(NUM_ENVS):
            state = torch.from_numpy(states[i]).unsqueeze(0)
            q = self.q(state)
            actions[i] = random.randrange(2) if random.random() < EPSILON else q.argmax()
        return actions

    def update(self, states, actions, rewards, next_states, dones):
        with torch.no_grad():
            target = rewards + 0.99 * (1 - dones) * self.target(next_states).amax(1)
        q = self.q(states).gather(1, actions[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def main():
    args = parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    env = gym.make_vec("CartPole-v1", num_envs=NUM_ENVS, vectorization_mode="vector_entry_point")
    agent, replay = Agent(), ReplayBuffer(CAPACITY)
    meter = Meter(args, WARMUP)
    steps = 0
    states, _ = env.reset(seed=args.seed)
    while meter.more(NUM_ENVS):
        actions = agent.act(states)
        next_states, rewards, terminated, _, _ = env.step(actions)
        replay.push(states, actions, rewards, next_states, terminated)
        agent.update(*replay.sample(BATCH))
        states, steps = next_states, steps + 1
        if steps % 200 == 0:
            agent.target.load_state_dict(agent.q.state_dict())
    env.close()
    meter.report()


if __name__ == "__main__":
    main()
