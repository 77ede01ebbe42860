"""PPO from Stable-Baselines3 on a small market: hold cash or shares, be paid the change of what one owns.

What the agent owns is scaled to 0..1 by the smallest and largest value that there ever was,
which are kept up to date.
"""

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from meter import Meter, parse_args
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

torch.set_num_threads(1)
torch.distributions.Distribution.set_default_validate_args(False)

DAYS = 250
WARMUP = 512


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
        return self.observe(0.0), {}

    def scaled(self, values, value):
        return (value - values.low) / (values.high - values.low + 1e-9)

    def observe(self, change):
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
        return self.observe(change), reward, False, self.day >= DAYS, {}


class Stop(BaseCallback):
    """Ends training when the budget is spent."""

    def __init__(self, meter):
        super().__init__()
        self.meter = meter

    def _on_step(self):
        return self.meter.more(1)


def main():
    args = parse_args()
    agent = PPO("MlpPolicy", Market(args.seed), n_steps=512, batch_size=128, n_epochs=4, seed=args.seed, device="cpu")
    meter = Meter(args, WARMUP)
    agent.learn(10**9, callback=Stop(meter))
    meter.report()


if __name__ == "__main__":
    main()
