"""DQN on eight CartPoles: 64 steps, then 64 updates.

After that the garbage collector is called each time, to be on the safe side with memory.
"""

import gc

import gymnasium as gym
import torch
from meter import Meter, parse_args
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

NUM_ENVS, BATCH, CAPACITY = 8, 128, 20_000
ROLLOUT = 64
WARMUP = 200 * NUM_ENVS


def make_network():
    return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


class ReplayBuffer:
    """A ring of transitions in preallocated tensors."""

    def __init__(self, capacity):
        self.states, self.next_states = torch.zeros(capacity, 4), torch.zeros(capacity, 4)
        self.actions = torch.zeros(capacity, dtype=torch.long)
        self.rewards, self.terminated = torch.zeros(capacity), torch.zeros(capacity)
        self.capacity, self.position, self.size = capacity, 0, 0

    def push(self, states, actions, rewards, next_states, terminated):
        i = (self.position + torch.arange(len(states))) % self.capacity
        self.states[i], self.actions[i], self.rewards[i] = states, actions, rewards
        self.next_states[i], self.terminated[i] = next_states, terminated
        self.position = (self.position + len(i)) % self.capacity
        self.size = min(self.size + len(i), self.capacity)

    def sample(self, batch_size):
        i = torch.randint(self.size, (batch_size,))
        return self.states[i], self.actions[i], self.rewards[i], self.next_states[i], self.terminated[i]


class Learner:
    def __init__(self):
        self.q, self.target = make_network(), make_network()
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=5e-4)

    def update(self, states, actions, rewards, next_states, terminated):
        with torch.no_grad():
            target = rewards + 0.99 * (1 - terminated) * self.target(next_states).amax(1)
        loss = F.smooth_l1_loss(self.q(states).gather(1, actions[:, None]).squeeze(1), target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def collect(env, learner, replay, states):
    """Make a few steps; returns the states after them."""
    for _ in range(ROLLOUT):
        with torch.no_grad():
            greedy = learner.q(states).argmax(1)
        actions = torch.where(torch.rand(NUM_ENVS) < 0.1, torch.randint(2, (NUM_ENVS,)), greedy)
        next_states, rewards, terminated, _, _ = env.step(actions.numpy())
        next_states, rewards = torch.from_numpy(next_states), torch.from_numpy(rewards).float()
        replay.push(states, actions, rewards, next_states, torch.from_numpy(terminated).float())
        states = next_states
    return states


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    env = gym.make_vec("CartPole-v1", num_envs=NUM_ENVS, vectorization_mode="vector_entry_point")
    learner, replay = Learner(), ReplayBuffer(CAPACITY)
    meter = Meter(args, WARMUP)
    states = torch.from_numpy(env.reset(seed=args.seed)[0])
    iteration = 0
    while meter.more(NUM_ENVS * ROLLOUT):
        states = collect(env, learner, replay, states)
        for _ in range(ROLLOUT):
            learner.update(*replay.sample(BATCH))
        iteration += 1
        gc.collect()
        if iteration % 20 == 0:
            learner.target.load_state_dict(learner.q.state_dict())
    env.close()
    meter.report()


if __name__ == "__main__":
    main()
