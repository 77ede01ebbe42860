"""DQN on 256 games of Snake with flood-fill features.

The reachable area of each of the three moves is counted by a breadth-first search in Python.
"""

from collections import deque

import numpy as np
import torch
from dqn import DQN
from meter import Meter, parse_args
from snake import VectorSnake

torch.set_num_threads(1)

NUM_ENVS = 256
SIZE = 10
BATCH = 512
TRAIN_STEPS = 4
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


def reachable_cells(body, row, column):
    """Number of free cells that can be reached from a cell, 0 if it is not free."""
    if not (0 <= row < SIZE and 0 <= column < SIZE) or body[row][column]:
        return 0
    seen = {(row, column)}
    queue = deque([(row, column)])
    while queue:
        r, c = queue.popleft()
        for cell in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
            inside = 0 <= cell[0] < SIZE and 0 <= cell[1] < SIZE
            if inside and cell not in seen and not body[cell[0]][cell[1]]:
                seen.add(cell)
                queue.append(cell)
    return len(seen)


def flood_features(env):
    """For straight, right and left: reachable cells / free cells, [N, 3]."""
    bodies = (env.life > 0).tolist()
    features = np.zeros((env.num_envs, 3), np.float32)
    for k, turn in enumerate((0, 1, 3)):
        starts = env.ahead(turn).tolist()
        for i in range(env.num_envs):
            free = SIZE * SIZE - sum(map(sum, bodies[i]))
            features[i, k] = reachable_cells(bodies[i], *starts[i]) / max(1, free)
    return torch.from_numpy(features)


def observe(env, basic):
    return torch.cat((basic, flood_features(env)), 1)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    env = VectorSnake(NUM_ENVS, SIZE, seed=args.seed)
    agent = DQN(inputs=13, actions=3, hidden=256)
    replay = ReplayBuffer(CAPACITY, features=13)
    meter = Meter(args, WARMUP)
    epsilon = 1.0
    states = observe(env, env.reset())
    while meter.more(NUM_ENVS):
        actions = agent.act(states, epsilon)
        basic, rewards, dones = env.step(actions)
        next_states = observe(env, basic)
        store(replay, states, actions, rewards, next_states, dones)
        for _ in range(TRAIN_STEPS):
            agent.update(*replay.sample(BATCH))
        states = next_states
        epsilon = max(0.01, epsilon * 0.999)
    print(f"{int(env.episodes)} episodes, {agent.updates} updates")
    meter.report()


if __name__ == "__main__":
    main()
