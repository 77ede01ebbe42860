"""DQN on stacks of four frames, kept as bytes and drawn as windows.

A batch is made float in a block that is kept, and scaled and shifted there.
"""

import numpy as np
import torch
from meter import Meter, parse_args
from paddle import SIZE, PaddleEnv
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

BATCH, CAPACITY, UPDATE_EVERY = 64, 20_000, 4
MEAN, STD = 0.02, 0.12  # of the pixels in 0..1
WARMUP = 400


class QNetwork(nn.Module):
    """Stacks [B, 4, 84, 84], normalised, to Q values [B, 3]."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(4, 8, 8, stride=8), nn.ReLU(), nn.Flatten(), nn.Linear(800, 64), nn.ReLU(), nn.Linear(64, 3)
        )

    def forward(self, stacks):
        return self.layers(stacks)


class FrameBuffer:
    """A ring of single frames; a window of five holds a stack and the next one."""

    def __init__(self, capacity):
        self.frames = np.zeros((capacity, SIZE, SIZE), np.uint8)
        self.actions = np.zeros(capacity, np.int64)
        self.rewards, self.dones = np.zeros((2, capacity), np.float32)
        self.capacity, self.position, self.size = capacity, 0, 0

    def push(self, frame, action, reward, done):
        i = self.position
        self.frames[i], self.actions[i], self.rewards[i], self.dones[i] = frame, action, reward, done
        self.position = (i + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, batch_size):
        i = np.random.randint(3, self.size - 1, batch_size)
        windows = self.frames[i[:, None] + np.arange(-3, 2)]
        return windows, *(torch.from_numpy(field[i]) for field in (self.actions, self.rewards, self.dones))


def preprocess(windows, out):
    """Frames as bytes to normalised floats, in a block that is kept."""
    return out.copy_(torch.from_numpy(windows)).mul_(1 / (255 * STD)).sub_(MEAN / STD)


class Agent:
    def __init__(self):
        self.q, self.target = QNetwork(), QNetwork()
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=3e-4, fused=True)
        self.stack, self.windows = torch.empty(1, 4, SIZE, SIZE), torch.empty(BATCH, 5, SIZE, SIZE)

    @torch.no_grad()
    def act(self, stack):
        if np.random.random() < 0.1:
            return np.random.randint(3)
        return int(self.q(preprocess(stack[None], self.stack)).argmax())

    def update(self, windows, actions, rewards, dones):
        x = preprocess(windows, self.windows)
        with torch.no_grad():
            target = rewards + 0.99 * (1 - dones) * self.target(x[:, 1:]).amax(1)
        q = self.q(x[:, :4]).gather(1, actions[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    env, agent, replay = PaddleEnv(args.seed), Agent(), FrameBuffer(CAPACITY)
    meter = Meter(args, WARMUP)
    steps = 0
    stack = np.repeat(env.reset()[None], 4, axis=0)
    while meter.more(1):
        action = agent.act(stack)
        frame, reward, done = env.step(action)
        replay.push(stack[-1], action, reward, done)
        stack = np.repeat(env.reset()[None], 4, axis=0) if done else np.concatenate((stack[1:], frame[None]))
        steps += 1
        if steps > 100 and steps % UPDATE_EVERY == 0:
            agent.update(*replay.sample(BATCH))
        if steps % 2000 == 0:
            agent.target.load_state_dict(agent.q.state_dict())
    meter.report()


if __name__ == "__main__":
    main()
