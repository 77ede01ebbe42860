"""DQN with prioritised replay on eight CartPoles.

Losses, Q values, gradient norms and the priority of every sample are read out one number at a time.
"""

from collections import defaultdict

import gymnasium as gym
import torch
from meter import Meter, parse_args
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

NUM_ENVS = 8
BATCH = 256
CAPACITY = 20_000
WARMUP = 200 * NUM_ENVS


def make_network():
    return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


class PrioritizedReplay:
    """A ring of transitions as tensors, with a priority for each."""

    def __init__(self, capacity):
        self.states, self.next_states = torch.zeros(capacity, 4), torch.zeros(capacity, 4)
        self.actions = torch.zeros(capacity, dtype=torch.long)
        self.rewards, self.dones = torch.zeros(capacity), torch.zeros(capacity)
        self.priorities = torch.zeros(capacity)
        self.capacity, self.position, self.size = capacity, 0, 0

    def push(self, states, actions, rewards, next_states, dones):
        i = (self.position + torch.arange(len(states))) % self.capacity
        self.states[i], self.actions[i], self.rewards[i] = states, actions, rewards
        self.next_states[i], self.dones[i] = next_states, dones
        self.priorities[i] = 1.0
        self.position = (self.position + len(i)) % self.capacity
        self.size = min(self.size + len(i), self.capacity)

    def sample(self, batch_size):
        i = torch.multinomial(self.priorities[: self.size], batch_size, replacement=True)
        batch = (self.states[i], self.actions[i], self.rewards[i], self.next_states[i], self.dones[i])
        return i, batch


class Learner:
    def __init__(self):
        self.q, self.target = make_network(), make_network()
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=5e-4)
        self.updates = 0
        self.metrics = defaultdict(float)

    def update(self, replay):
        index, (states, actions, rewards, next_states, dones) = replay.sample(BATCH)
        with torch.no_grad():
            target = rewards + 0.99 * (1 - dones) * self.target(next_states).amax(1)
        q = self.q(states)
        td = q.gather(1, actions[:, None]).squeeze(1) - target
        loss = F.smooth_l1_loss(td, torch.zeros_like(td))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.record(replay, index, td.detach(), q.detach(), loss.detach())
        self.updates += 1
        if self.updates % 200 == 0:
            self.target.load_state_dict(self.q.state_dict())
            print({name: round(value / 200, 4) for name, value in self.metrics.items()})
            self.metrics.clear()

    def record(self, replay, index, td, q, loss):
        for i in range(BATCH):
            replay.priorities[index[i].item()] = abs(td[i].item()) ** 0.6 + 1e-3
        self.metrics["loss"] += loss.item()
        self.metrics["q_mean"] += q.mean().item()
        self.metrics["q_max"] += q.max().item()
        self.metrics["td_abs"] += td.abs().mean().item()
        for name, parameter in self.q.named_parameters():
            self.metrics[f"grad/{name}"] += parameter.grad.norm().item()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    env = gym.make_vec("CartPole-v1", num_envs=NUM_ENVS, vectorization_mode="vector_entry_point")
    learner = Learner()
    replay = PrioritizedReplay(CAPACITY)
    meter = Meter(args, WARMUP)
    states = torch.from_numpy(env.reset(seed=args.seed)[0])
    while meter.more(NUM_ENVS):
        with torch.no_grad():
            greedy = learner.q(states).argmax(1)
        actions = torch.where(torch.rand(NUM_ENVS) < 0.1, torch.randint(2, (NUM_ENVS,)), greedy)
        next_states, rewards, terminated, _, _ = env.step(actions.numpy())
        next_states = torch.from_numpy(next_states)
        rewards = torch.from_numpy(rewards).float()
        replay.push(states, actions, rewards, next_states, torch.from_numpy(terminated).float())
        learner.update(replay)
        states = next_states
    env.close()
    meter.report()


if __name__ == "__main__":
    main()
