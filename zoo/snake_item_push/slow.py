"""DQN on 256 games of Snake, basic features.

The transitions of a vector step go into the replay buffer one by one.
"""

import numpy as np
import torch
from dqn import DQN
from meter import Meter, parse_args
from snake import VectorSnake

torch.set_num_threads(1)

NUM_ENVS = 256
BATCH = 64
CAPACITY = 100_000
TRAIN_EVERY = 4
WARMUP = 60 * NUM_ENVS


class ReplayBuffer:
    """A ring of transitions in preallocated arrays."""

    def __init__(self, capacity: int, features: int):
        self.states = np.zeros((capacity, features), np.float32)
        self.actions = np.zeros(capacity, np.int64)
        self.rewards = np.zeros(capacity, np.float32)
        self.next_states = np.zeros((capacity, features), np.float32)
        self.dones = np.zeros(capacity, np.float32)
        self.capacity, self.position, self.size = capacity, 0, 0

    def sample(self, batch_size):
        i = np.random.randint(0, self.size, batch_size)
        columns = (self.states, self.actions, self.rewards, self.next_states, self.dones)
        return tuple(torch.from_numpy(column[i]) for column in columns)

    def push(self, state, action, reward, next_state, done):
        i = self.position
        self.states[i] = state
        self.actions[i] = action
        self.rewards[i] = reward
        self.next_states[i] = next_state
        self.dones[i] = done
        self.position = (i + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)


def store(replay, states, actions, rewards, next_states, dones):
    for i in range(NUM_ENVS):
        replay.push(
            states[i].cpu().numpy(),
            actions[i].item(),
            rewards[i].item(),
            next_states[i].cpu().numpy(),
            dones[i].item(),
        )


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    env = VectorSnake(NUM_ENVS, size=10, seed=args.seed)
    agent = DQN(inputs=10, actions=3)
    replay = ReplayBuffer(CAPACITY, features=10)
    meter = Meter(args, WARMUP)
    epsilon, vector_steps = 1.0, 0
    states = env.reset()
    while meter.more(NUM_ENVS):
        actions = agent.act(states, epsilon)
        next_states, rewards, dones = env.step(actions)
        store(replay, states, actions, rewards, next_states, dones)
        vector_steps += 1
        if vector_steps % TRAIN_EVERY == 0:
            agent.update(*replay.sample(BATCH))
        states = next_states
        epsilon = max(0.01, epsilon * 0.999)
    print(f"{int(env.episodes)} episodes, {agent.updates} updates")
    meter.report()


if __name__ == "__main__":
    main()
