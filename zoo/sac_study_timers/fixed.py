"""Visual SAC on a small car game, with timers.

The replay buffer keeps every frame once, as bytes; a batch is one gather of windows of five frames. The timers wait
for the device before they read the clock.
"""

import random

import numpy as np
import torch
from car import CarEnv
from device import Device
from meter import Meter, parse_args
from sac import SAC

torch.set_num_threads(1)

BATCH = 256
CAPACITY = 1000
LEARNING_STARTS = 1000
WARMUP = LEARNING_STARTS + 5


class FrameReplay:
    """A ring of single frames with the action, reward and end that followed each.

    A reset writes its first frame four times, so every window of five within an episode is
    (state, next state), and only windows that end on a real step are drawn.
    """

    def __init__(self, capacity, batch_size):
        self.frames = torch.zeros(capacity, 96, 96, dtype=torch.uint8)
        self.actions = torch.zeros(capacity, 2)
        self.rewards = torch.zeros(capacity)
        self.dones = torch.zeros(capacity)
        self.is_step = np.zeros(capacity, bool)
        self.capacity, self.position, self.full = capacity, 0, False
        self.windows = torch.empty(batch_size * 5, 96, 96, dtype=torch.uint8)

    def begin(self, frame):
        for _ in range(4):
            self._write(frame, np.zeros(2, np.float32), 0.0, False, False)

    def push(self, frame, action, reward, done):
        self._write(frame, action, reward, done, True)

    def _write(self, frame, action, reward, done, is_step):
        i = self.position
        self.frames[i] = torch.from_numpy(frame)
        self.actions[i] = torch.from_numpy(action)
        self.rewards[i] = reward
        self.dones[i] = float(done)
        self.is_step[i] = is_step
        self.position = (i + 1) % self.capacity
        self.full |= self.position == 0

    def state(self):
        """The stack [4, 96, 96] that ends with the newest frame."""
        return self.frames[torch.arange(self.position - 4, self.position) % self.capacity].numpy()

    def sample(self, batch_size):
        """Sample a batch of experiences; both stacks are views of one gathered window."""
        last = self._draw(batch_size)
        index = (last[:, None] + torch.arange(-4, 1)).flatten() % self.capacity
        torch.index_select(self.frames, 0, index, out=self.windows)
        windows = self.windows.view(batch_size, 5, 96, 96)
        rewards, dones = self.rewards[last, None], self.dones[last, None]
        return windows[:, :4], self.actions[last], rewards, windows[:, 1:], dones

    def _draw(self, batch_size):
        count = self.capacity if self.full else self.position
        last = np.random.randint(4, count, 2 * batch_size)
        overwritten = (last - self.position) % self.capacity < 4
        return torch.from_numpy(last[self.is_step[last] & ~overwritten][:batch_size])


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    np.random.seed(args.seed)
    env = CarEnv(args.seed)
    device = Device()
    agent = SAC(actions=2, device=device, clock=device.synchronised_clock)
    replay = FrameReplay(CAPACITY, BATCH)
    meter = Meter(args, WARMUP)
    total_steps = 0
    replay.begin(env.reset())
    while meter.more(1):
        action = agent.act(replay.state()) if total_steps >= LEARNING_STARTS else env.random_action()
        frame, reward, done = env.step(action)
        replay.push(frame, action, reward, done)
        if done:
            replay.begin(env.reset())
        total_steps += 1
        if total_steps >= LEARNING_STARTS:
            agent.update(replay, BATCH)
    meter.report()


if __name__ == "__main__":
    main()
