"""DQN on 256 games of Snake, basic features.

The number of updates grows with the number of environments: 64 for every vector step.
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
WARMUP = 10 * NUM_ENVS


class ReplayBuffer:
    """A ring of transitions in preallocated arrays."""

    def __init__(self, capacity: int, features: int):
        self.states = np.zeros((capacity, features), np.float32)
        self.actions = np.zeros(capacity, np.int64)
        self.rewards = np.zeros(capacity, np.float32)
        self.next_states = np.zeros((capacity, features), np.float32)
        self.dones = np.zeros(capacity, np.float32)
        self.capacity, self.position, self.size = capacity, 0, 0

    def push_batch(self, states, actions, rewards, next_states, dones):
        i = (self.position + np.arange(len(states))) % self.capacity
        self.states[i] = states
        self.actions[i] = actions
        self.rewards[i] = rewards
        self.next_states[i] = next_states
        self.dones[i] = dones
        self.position = (self.position + len(i)) % self.capacity
        self.size = min(self.size + len(i), self.capacity)

    def sample(self, batch_size):
        i = np.random.randint(0, self.size, batch_size)
        columns = (self.states, self.actions, self.rewards, self.next_states, self.dones)
        return tuple(torch.from_numpy(column[i]) for column in columns)


def store(replay, states, actions, rewards, next_states, dones):
    replay.push_batch(
        states.cpu().numpy(),
        actions.cpu().numpy(),
        rewards.cpu().numpy(),
        next_states.cpu().numpy(),
        dones.cpu().numpy(),
    )


def train(agent, replay):
    num_train_steps = max(1, NUM_ENVS // 4)
    for _ in range(num_train_steps):
        agent.update(*replay.sample(BATCH))


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    env = VectorSnake(NUM_ENVS, size=10, seed=args.seed)
    agent = DQN(inputs=10, actions=3)
    replay = ReplayBuffer(CAPACITY, features=10)
    meter = Meter(args, WARMUP)
    epsilon = 1.0
    states = env.reset()
    while meter.more(NUM_ENVS):
        actions = agent.act(states, epsilon)
        next_states, rewards, dones = env.step(actions)
        store(replay, states, actions, rewards, next_states, dones)
        train(agent, replay)
        states = next_states
        epsilon = max(0.01, epsilon * 0.999)
    print(f"{int(env.episodes)} episodes, {agent.updates} updates")
    meter.report()


if __name__ == "__main__":
    main()
