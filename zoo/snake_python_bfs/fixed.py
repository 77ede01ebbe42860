"""DQN on 256 games of Snake with flood-fill features.

The reachable area of each of the three moves is counted for all games at once, a board row in one word.
"""

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


ROW_BITS = (1 << np.arange(SIZE)).astype(np.uint16)


def reachable_cells(free, starts):
    """Number of free cells reachable from each start, 0 if it is not free.

    All games at once: a row of the board is one word, and a sweep spreads every row by one cell.

    Args:
        free: rows of free cells as bits, [M, SIZE] uint16.
        starts: (row, column), [M, 2].
    """
    inside = ((starts >= 0) & (starts < SIZE)).all(1)
    row, column = np.clip(starts, 0, SIZE - 1).T
    games = np.arange(len(starts))
    reached = np.zeros_like(free)
    reached[games, row] = np.where(inside, ROW_BITS[column], 0) & free[games, row]
    while True:
        spread = reached | (reached << 1) | (reached >> 1)
        spread[:, 1:] |= reached[:, :-1]
        spread[:, :-1] |= reached[:, 1:]
        spread &= free
        if np.array_equal(spread, reached):
            return np.bitwise_count(reached).sum(1)
        reached = spread


def flood_features(env):
    """For straight, right and left: reachable cells / free cells, [N, 3]."""
    empty = (env.life == 0).numpy()
    free = (empty * ROW_BITS).sum(2, dtype=np.uint16)
    starts = np.concatenate([env.ahead(turn).numpy() for turn in (0, 1, 3)])
    cells = reachable_cells(np.tile(free, (3, 1)), starts).reshape(3, -1).T
    return torch.from_numpy((cells / np.maximum(1, empty.sum((1, 2)))[:, None]).astype(np.float32))


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
