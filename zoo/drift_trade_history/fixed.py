"""DQN on a small market: hold cash or shares, be paid the change of what one owns.

What the agent owns is scaled to 0..1 by the smallest and largest value that there ever was,
which are kept up to date.
"""

import gymnasium as gym
import numpy as np
import torch
from dqn import DQN
from gymnasium import spaces
from meter import Meter, parse_args

torch.set_num_threads(1)

DAYS = 250
BATCH = 64
CAPACITY = 50_000
TRAIN_EVERY = 2
WARMUP = 500


class Range:
    """The smallest and largest value so far."""

    def __init__(self):
        self.low, self.high = np.inf, -np.inf

    def append(self, value):
        self.low, self.high = min(self.low, value), max(self.high, value)


class Market(gym.Env):
    """One share whose price walks at random around a slow wave; actions are hold, buy, sell."""

    action_space = spaces.Discrete(3)
    observation_space = spaces.Box(-5.0, 5.0, (5,), np.float32)

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.worths, self.cashes, self.held = Range(), Range(), Range()

    def reset(self, *, seed=None, options=None):
        self.day, self.price = 0, 100.0
        self.cash, self.shares = 10_000.0, 0.0
        self.worth = self.cash
        return self.owned_and_seen(0.0), {}

    def scaled(self, values, value):
        return (value - values.low) / (values.high - values.low + 1e-9)

    def owned_and_seen(self, change):
        self.worths.append(self.worth)
        self.cashes.append(self.cash)
        self.held.append(self.shares)
        owned = (
            self.scaled(self.worths, self.worth),
            self.scaled(self.cashes, self.cash),
            self.scaled(self.held, self.shares),
        )
        return np.array([*owned, 50 * change, np.sin(self.day / 20)], np.float32)

    def step(self, action):
        change = 0.004 * np.sin(self.day / 20) + 0.01 * self.rng.standard_normal()
        self.day += 1
        self.price *= 1 + change
        if action == 1:
            self.shares, self.cash = self.shares + 0.5 * self.cash / self.price, 0.5 * self.cash
        elif action == 2:
            self.shares, self.cash = 0.5 * self.shares, self.cash + 0.5 * self.shares * self.price
        before, self.worth = self.worth, self.cash + self.shares * self.price
        reward = 100 * float(np.log(self.worth / before))
        return self.owned_and_seen(change), reward, False, self.day >= DAYS, {}


class ReplayBuffer:
    """A ring of transitions in preallocated arrays."""

    def __init__(self):
        self.states = np.zeros((CAPACITY, 5), np.float32)
        self.next_states = np.zeros((CAPACITY, 5), np.float32)
        self.actions = np.zeros(CAPACITY, np.int64)
        self.rewards = np.zeros(CAPACITY, np.float32)
        self.dones = np.zeros(CAPACITY, np.float32)
        self.position, self.size = 0, 0

    def push(self, state, action, reward, next_state, done):
        i = self.position
        self.states[i], self.actions[i], self.rewards[i] = state, action, reward
        self.next_states[i], self.dones[i] = next_state, done
        self.position = (self.position + 1) % CAPACITY
        self.size = min(self.size + 1, CAPACITY)

    def sample(self, batch_size):
        i = np.random.randint(0, self.size, batch_size)
        columns = (self.states, self.actions, self.rewards, self.next_states, self.dones)
        return tuple(torch.from_numpy(column[i]) for column in columns)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    env, agent, replay = Market(args.seed), DQN(inputs=5, actions=3, hidden=64), ReplayBuffer()
    meter = Meter(args, WARMUP)
    steps, worths = 0, []
    state, _ = env.reset()
    while meter.more(1):
        epsilon = max(0.05, 1 - steps / 5_000)
        action = int(agent.act(torch.from_numpy(state)[None], epsilon))
        next_state, reward, terminated, truncated, _ = env.step(action)
        replay.push(state, action, reward, next_state, float(terminated))
        state = next_state
        steps += 1
        if steps >= WARMUP and steps % TRAIN_EVERY == 0:
            agent.update(*replay.sample(BATCH))
        if terminated or truncated:
            worths.append(env.worth)
            state, _ = env.reset()
    print(f"{len(worths)} years, {np.mean(worths[-5:]):.0f} at the end of the last five")
    meter.report()


if __name__ == "__main__":
    main()
