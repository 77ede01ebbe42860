"""DQN with five-step returns on 64 CartPoles, learning from slices of episodes.

The places where a slice fits into its episode are noted when a step is stored.
"""

import gymnasium as gym
import numpy as np
import torch
from meter import Meter, parse_args
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

NUM_ENVS, BATCH, SLICE = 64, 128, 5
CAPACITY = 100_000  # steps of each environment
EXPLORE = 8_000
GAMMA = 0.99


def make_network():
    return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


class SliceReplay:
    """One row of steps for each environment, [N, capacity], filled from left to right."""

    def __init__(self):
        self.states = np.zeros((NUM_ENVS, CAPACITY, 4), np.float32)
        self.actions = np.zeros((NUM_ENVS, CAPACITY), np.int64)
        self.rewards = np.zeros((NUM_ENVS, CAPACITY), np.float32)
        self.ended = np.zeros((NUM_ENVS, CAPACITY), np.float32)
        self.episode = np.zeros((NUM_ENVS, CAPACITY), np.int32)
        self.number = np.zeros(NUM_ENVS, np.int32)
        self.fits = np.zeros((NUM_ENVS * CAPACITY, 2), np.int32)
        self.num_fits = 0
        self.size = 0

    def add(self, states, actions, rewards, terminated, truncated):
        t = self.size
        self.states[:, t], self.actions[:, t], self.rewards[:, t] = states, actions, rewards
        self.ended[:, t], self.episode[:, t] = terminated, self.number
        self.number += terminated | truncated
        if t >= SLICE:
            env = np.flatnonzero(self.episode[:, t - SLICE] == self.episode[:, t])
            at = slice(self.num_fits, self.num_fits + len(env))
            self.fits[at, 0], self.fits[at, 1] = env, t - SLICE
            self.num_fits += len(env)
        self.size = min(t + 1, CAPACITY - 1)

    def sample(self, batch_size):
        env, first = self.fits[np.random.randint(self.num_fits, size=batch_size)].T
        t = first[:, None] + np.arange(SLICE)
        rewards = (self.rewards[env[:, None], t] * GAMMA ** np.arange(SLICE)).sum(1, dtype=np.float32)
        last = first + SLICE
        columns = (self.states[env, first], self.actions[env, first], rewards)
        columns += (self.states[env, last], self.ended[env, last - 1])
        return [torch.from_numpy(column) for column in columns]


class Learner:
    def __init__(self):
        self.q, self.target = make_network(), make_network()
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=5e-4)
        self.updates = 0

    @torch.no_grad()
    def act(self, states):
        greedy = self.q(torch.from_numpy(states)).argmax(1).numpy()
        return np.where(np.random.random(NUM_ENVS) < 0.1, np.random.randint(2, size=NUM_ENVS), greedy)

    def update(self, states, actions, rewards, next_states, ended):
        with torch.no_grad():
            target = rewards + GAMMA**SLICE * (1 - ended) * self.target(next_states).amax(1)
        loss = F.smooth_l1_loss(self.q(states).gather(1, actions[:, None]).squeeze(1), target)
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
    env = gym.make_vec("CartPole-v1", num_envs=NUM_ENVS, vectorization_mode="vector_entry_point")
    learner, replay = Learner(), SliceReplay()
    meter = Meter(args, EXPLORE * NUM_ENVS)
    states, _ = env.reset(seed=args.seed)
    while meter.more(NUM_ENVS):
        exploring = replay.size < EXPLORE
        actions = np.random.randint(2, size=NUM_ENVS) if exploring else learner.act(states)
        next_states, rewards, terminated, truncated, _ = env.step(actions)
        replay.add(states, actions, rewards, terminated, truncated)
        states = next_states
        if not exploring:
            learner.update(*replay.sample(BATCH))
    env.close()
    meter.report()


if __name__ == "__main__":
    main()
