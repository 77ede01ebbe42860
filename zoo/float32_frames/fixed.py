"""DQN from pixels.

The replay buffer keeps every frame once, as bytes; stacks are put together when a batch is drawn.
"""

import numpy as np
import torch
from dqn import DQN
from meter import Meter, parse_args
from paddle import PaddleEnv

torch.set_num_threads(1)

BATCH = 256
CAPACITY = 2000
LEARNING_STARTS = 1000
WARMUP = LEARNING_STARTS + 20


class FrameReplay:
    """A ring of single frames with the action, reward and end that led to each.

    A reset writes its first frame four times, so every window of five that ends on a real step is
    (state, next state).
    """

    def __init__(self, capacity):
        self.frames = np.zeros((capacity, 84, 84), np.uint8)
        self.actions = np.zeros(capacity, np.int64)
        self.rewards = np.zeros(capacity, np.float32)
        self.dones = np.zeros(capacity, np.float32)
        self.is_step = np.zeros(capacity, bool)
        self.capacity, self.position, self.size = capacity, 0, 0

    def begin(self, frame):
        for _ in range(4):
            self.push(frame, 0, 0.0, False, is_step=False)

    def push(self, frame, action, reward, done, is_step=True):
        i = self.position
        self.frames[i] = frame
        self.actions[i] = action
        self.rewards[i] = reward
        self.dones[i] = done
        self.is_step[i] = is_step
        self.position = (i + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def state(self):
        """The stack [4, 84, 84] that ends with the newest frame."""
        return self.frames[np.arange(self.position - 4, self.position) % self.capacity]

    def sample(self, batch_size):
        last = np.random.randint(4, self.size, 2 * batch_size)
        overwritten = (last - self.position) % self.capacity < 4
        last = last[self.is_step[last] & ~overwritten][:batch_size]
        windows = torch.from_numpy(self.frames[(last[:, None] + np.arange(-4, 1)) % self.capacity])
        actions = torch.from_numpy(self.actions[last])
        rewards = torch.from_numpy(self.rewards[last])
        dones = torch.from_numpy(self.dones[last])
        return windows[:, :4], actions, rewards, windows[:, 1:], dones


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    rng = np.random.default_rng(args.seed)
    env = PaddleEnv(args.seed)
    agent = DQN(actions=3)
    replay = FrameReplay(CAPACITY)
    meter = Meter(args, WARMUP)
    total_steps = 0
    replay.begin(env.reset())
    while meter.more(1):
        action = agent.act(replay.state(), max(0.05, 1 - total_steps / 10_000), rng)
        frame, reward, done = env.step(action)
        replay.push(frame, action, reward, done)
        if done:
            replay.begin(env.reset())
        total_steps += 1
        if total_steps >= LEARNING_STARTS:
            agent.update(*replay.sample(BATCH))
    meter.report()


if __name__ == "__main__":
    main()
