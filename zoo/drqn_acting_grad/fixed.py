"""DQN with an LSTM over the last observations, on eight CartPoles whose speeds are hidden.

Actions are chosen without gradients.
"""

import gymnasium as gym
import numpy as np
import torch
from meter import Meter, parse_args
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

NUM_ENVS, WINDOW, BATCH, CAPACITY = 8, 16, 32, 4_000
UPDATE_EVERY, EPSILON = 16, 0.1
WARMUP = 100 * NUM_ENVS


class RecurrentQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.cell, self.head = nn.Linear(2, 32), nn.LSTMCell(32, 64), nn.Linear(64, 2)

    def forward(self, windows):
        state = None
        for seen in torch.relu(self.embed(windows)).unbind(1):
            state = self.cell(seen, state)
        return self.head(state[0])


class ReplayBuffer:
    """A ring of vector steps; a window is a slice of it."""

    def __init__(self, capacity):
        self.seen = np.zeros((capacity, NUM_ENVS, 2), np.float32)
        self.actions = np.zeros((capacity, NUM_ENVS), np.int64)
        self.rewards, self.dones = np.zeros((2, capacity, NUM_ENVS), np.float32)
        self.capacity, self.position, self.size = capacity, 0, 0

    def push(self, seen, actions, rewards, dones):
        i = self.position
        self.seen[i], self.actions[i], self.rewards[i], self.dones[i] = seen, actions, rewards, dones
        self.position = (i + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, batch_size):
        last = np.random.randint(WINDOW, self.size - 1, batch_size)
        env = np.random.randint(0, NUM_ENVS, batch_size)
        windows = torch.from_numpy(self.seen[last[:, None] + np.arange(1 - WINDOW, 2), env[:, None]])
        fields = (torch.from_numpy(each[last, env]) for each in (self.actions, self.rewards, self.dones))
        return windows[:, :-1], windows[:, 1:], *fields


class Agent:
    def __init__(self):
        self.q, self.target = RecurrentQ(), RecurrentQ()
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=1e-3, fused=True)

    @torch.no_grad()
    def act(self, windows):
        greedy = self.q(torch.from_numpy(windows)).argmax(1)
        return torch.where(torch.rand(NUM_ENVS) < EPSILON, torch.randint(2, (NUM_ENVS,)), greedy).numpy()

    def update(self, windows, next_windows, actions, rewards, dones):
        with torch.no_grad():
            target = rewards + 0.99 * (1 - dones) * self.target(next_windows).amax(1)
        q = self.q(windows).gather(1, actions[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    env = gym.make_vec("CartPole-v1", num_envs=NUM_ENVS, vectorization_mode="vector_entry_point")
    agent, replay = Agent(), ReplayBuffer(CAPACITY)
    meter = Meter(args, WARMUP)
    steps = 0
    windows = np.zeros((NUM_ENVS, WINDOW, 2), np.float32)
    windows[:, -1] = env.reset(seed=args.seed)[0][:, ::2]
    while meter.more(NUM_ENVS):
        actions = agent.act(windows)
        states, rewards, terminated, truncated, _ = env.step(actions)
        replay.push(windows[:, -1], actions, rewards, terminated)
        windows[terminated | truncated] = 0
        windows[:, :-1] = windows[:, 1:]
        windows[:, -1] = states[:, ::2]
        steps += 1
        if steps > 2 * WINDOW and steps % UPDATE_EVERY == 0:
            agent.update(*replay.sample(BATCH))
        if steps % 500 == 0:
            agent.target.load_state_dict(agent.q.state_dict())
    env.close()
    meter.report()


if __name__ == "__main__":
    main()
