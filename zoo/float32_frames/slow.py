"""DQN from pixels.

The replay buffer keeps whole float32 stacks, the state and the next state of every transition.
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


class ReplayBuffer:
    """A ring of transitions in preallocated arrays."""

    def __init__(self, capacity):
        self.states = np.zeros((capacity, 4, 84, 84), np.float32)
        self.next_states = np.zeros((capacity, 4, 84, 84), np.float32)
        self.actions = np.zeros(capacity, np.int64)
        self.rewards = np.zeros(capacity, np.float32)
        self.dones = np.zeros(capacity, np.float32)
        self.capacity, self.position, self.size = capacity, 0, 0

    def push(self, state, action, reward, next_state, done):
        i = self.position
        self.states[i] = state
        self.next_states[i] = next_state
        self.actions[i] = action
        self.rewards[i] = reward
        self.dones[i] = done
        self.position = (i + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, batch_size):
        i = np.random.randint(0, self.size, batch_size)
        states = torch.from_numpy(self.states[i])
        next_states = torch.from_numpy(self.next_states[i])
        actions = torch.from_numpy(self.actions[i])
        rewards = torch.from_numpy(self.rewards[i])
        dones = torch.from_numpy(self.dones[i])
        return states, actions, rewards, next_states, dones


def push_frame(stack, frame):
    """The stack one step later, scaled to 0..1."""
    return np.concatenate((stack[1:], frame[None].astype(np.float32) / 255.0))


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    rng = np.random.default_rng(args.seed)
    env = PaddleEnv(args.seed)
    agent = DQN(actions=3)
    replay = ReplayBuffer(CAPACITY)
    meter = Meter(args, WARMUP)
    total_steps = 0
    state = np.repeat(env.reset()[None].astype(np.float32) / 255.0, 4, axis=0)
    while meter.more(1):
        action = agent.act(state, max(0.05, 1 - total_steps / 10_000), rng)
        frame, reward, done = env.step(action)
        next_state = push_frame(state, frame)
        replay.push(state, action, reward, next_state, done)
        state = np.repeat(env.reset()[None].astype(np.float32) / 255.0, 4, axis=0) if done else next_state
        total_steps += 1
        if total_steps >= LEARNING_STARTS:
            agent.update(*replay.sample(BATCH))
    meter.report()


if __name__ == "__main__":
    main()
