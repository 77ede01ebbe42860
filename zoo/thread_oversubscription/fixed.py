"""DQN on pixel-like features with two environment processes that run while the learner trains.

Torch is given one thread: the environments need the cores.
"""

import itertools

import gymnasium as gym
import numpy as np
import torch
from meter import Meter, parse_args
from torch import nn
from torch.nn import functional as F
from worker_env import BusyEnv

torch.set_num_threads(1)

NUM_ENVS = 2
BATCH = 256
CAPACITY = 20_000
FEATURES = BusyEnv.features
WARMUP = 150 * NUM_ENVS


def make_network():
    sizes = (FEATURES, 256, 256)
    hidden = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(256, 4))


class ReplayBuffer:
    """A ring of transitions in preallocated arrays."""

    def __init__(self, capacity):
        self.states = np.zeros((capacity, FEATURES), np.float32)
        self.next_states = np.zeros((capacity, FEATURES), np.float32)
        self.actions = np.zeros(capacity, np.int64)
        self.rewards, self.dones = np.zeros(capacity, np.float32), np.zeros(capacity, np.float32)
        self.capacity, self.position, self.size = capacity, 0, 0

    def push(self, states, actions, rewards, next_states, dones):
        i = (self.position + np.arange(len(states))) % self.capacity
        self.states[i], self.actions[i], self.rewards[i] = states, actions, rewards
        self.next_states[i], self.dones[i] = next_states, dones
        self.position = (self.position + len(i)) % self.capacity
        self.size = min(self.size + len(i), self.capacity)

    def sample(self, batch_size):
        i = np.random.randint(0, self.size, batch_size)
        columns = (self.states, self.actions, self.rewards, self.next_states, self.dones)
        return tuple(torch.from_numpy(column[i]) for column in columns)


class Learner:
    def __init__(self):
        self.q, self.target = make_network(), make_network()
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=5e-4)
        self.updates = 0

    @torch.no_grad()
    def act(self, states, epsilon):
        greedy = self.q(torch.from_numpy(states)).argmax(1).numpy()
        return np.where(np.random.random(NUM_ENVS) < epsilon, np.random.randint(4, size=NUM_ENVS), greedy)

    def update(self, states, actions, rewards, next_states, dones):
        with torch.no_grad():
            target = rewards + 0.99 * (1 - dones) * self.target(next_states).amax(1)
        chosen = self.q(states).gather(1, actions[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(chosen, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.updates += 1
        if self.updates % 200 == 0:
            self.target.load_state_dict(self.q.state_dict())


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    env = gym.vector.AsyncVectorEnv([BusyEnv] * NUM_ENVS)
    learner = Learner()
    replay = ReplayBuffer(CAPACITY)
    meter = Meter(args, WARMUP)
    states, _ = env.reset(seed=args.seed)
    while meter.more(NUM_ENVS):
        actions = learner.act(states, epsilon=0.1)
        env.step_async(actions)
        if replay.size >= BATCH:
            learner.update(*replay.sample(BATCH))
        next_states, rewards, terminated, _, _ = env.step_wait()
        replay.push(states, actions, rewards, next_states, terminated)
        states = next_states
    env.close()
    meter.report()


if __name__ == "__main__":
    main()
