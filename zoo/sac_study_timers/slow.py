"""Visual SAC on a small car game, with timers.

The replay buffer is a deque of transitions whose states are float32 stacks of four frames. The timers of the layers
read the clock without waiting for the device.
"""

import random
import time
from collections import deque

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


class FrameStack:
    """The last four frames, scaled to 0..1 and stacked."""

    def __init__(self, env):
        self.env = env
        self.frames = deque(maxlen=4)

    def reset(self):
        frame = self.env.reset().astype(np.float32) / 255.0
        self.frames.extend([frame] * 4)
        return np.stack(self.frames)

    def step(self, action):
        frame, reward, done = self.env.step(action)
        self.frames.append(frame.astype(np.float32) / 255.0)
        return np.stack(self.frames), reward, done


class ReplayBuffer:
    def __init__(self, capacity, device):
        self.buffer = deque(maxlen=capacity)
        self.device = device

    def push(self, state, action, reward, next_state, done):
        self.buffer.append((state, action, reward, next_state, done))

    def sample(self, batch_size):
        """Sample a batch of experiences."""
        batch = random.sample(self.buffer, batch_size)
        states, actions, rewards, next_states, dones = zip(*batch, strict=True)
        states = torch.FloatTensor(np.array(states)).to(self.device)
        actions = torch.FloatTensor(np.array(actions)).to(self.device)
        rewards = torch.FloatTensor(np.array(rewards)).unsqueeze(1).to(self.device)
        next_states = torch.FloatTensor(np.array(next_states)).to(self.device)
        dones = torch.FloatTensor(np.array(dones)).unsqueeze(1).to(self.device)
        return states, actions, rewards, next_states, dones


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    env = FrameStack(CarEnv(args.seed))
    agent = SAC(actions=2, device=Device(), clock=time.perf_counter)
    replay = ReplayBuffer(CAPACITY, torch.device("cpu"))
    meter = Meter(args, WARMUP)
    total_steps = 0
    state = env.reset()
    while meter.more(1):
        action = agent.act(state) if total_steps >= LEARNING_STARTS else env.env.random_action()
        next_state, reward, done = env.step(action)
        replay.push(state, action, reward, next_state, float(done))
        state = env.reset() if done else next_state
        total_steps += 1
        if total_steps >= LEARNING_STARTS:
            agent.update(replay, BATCH)
    meter.report()


if __name__ == "__main__":
    main()
