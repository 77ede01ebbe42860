"""Stable-Baselines3 DQN keeps a greenhouse at the right temperature and humidity."""
import argparse
import json
import tempfile
import time

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, EvalCallback
from stable_baselines3.common.monitor import Monitor


class GreenhouseEnv(gym.Env):
    """Heater, window and sprinkler against the weather of a day (one step is ten minutes)."""

    ACTIONS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1]], dtype=np.float64)

    def __init__(self, horizon=144):
        self.horizon = horizon
        self.action_space = spaces.Discrete(len(self.ACTIONS))
        self.observation_space = spaces.Box(-5.0, 5.0, (7,), np.float32)

    def _outside(self):
        hour = self.t / 6.0
        sun = max(0.0, np.sin((hour - 6.0) / 12.0 * np.pi))
        return 8.0 + 10.0 * sun + self.drift, sun * self.clouds

    def _obs(self):
        phase = self.t / self.horizon * 2 * np.pi
        out, sun = self._outside()
        return np.array([(self.temp - 22) / 10, (self.humid - 0.6) * 4, (out - 15) / 10, sun,
                         np.sin(phase), np.cos(phase), self.heater], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.temp = self.np_random.uniform(14, 26)
        self.humid = self.np_random.uniform(0.3, 0.9)
        self.drift = self.np_random.normal(0, 2)
        self.clouds = self.np_random.uniform(0.3, 1.0)
        self.heater = 0.0
        return self._obs(), {}

    def step(self, action):
        heat, window, spray = self.ACTIONS[action]
        self.heater += 0.5 * (heat - self.heater)
        for _ in range(5):
            out, sun = self._outside()
            leak = 0.01 + 0.06 * window
            self.temp += leak * (out - self.temp) + 0.5 * self.heater + 0.6 * sun - 0.2 * spray
            self.humid += leak * (0.5 - self.humid) + 0.03 * spray - 0.006 * (self.temp - 15) / 10
        self.drift += self.np_random.normal(0, 0.1)
        self.temp = float(np.clip(self.temp, -10, 50))
        self.humid = float(np.clip(self.humid, 0.0, 1.0))
        self.t += 1
        comfort = np.exp(-((self.temp - 22) / 4) ** 2) + np.exp(-((self.humid - 0.6) / 0.15) ** 2)
        reward = float(comfort - 0.2 * heat - 0.05 * spray)
        return self._obs(), reward, False, self.t >= self.horizon, {}


class Budget(BaseCallback):
    """Ends the training after a number of seconds and counts steps after the warm-up."""

    def __init__(self, seconds, warmup=1.0):
        super().__init__()
        self.limit, self.warmup = seconds, warmup

    def _on_training_start(self):
        self.start = time.perf_counter()
        self.mark = None
        self.steps0 = 0

    def _on_step(self):
        now = time.perf_counter()
        if self.mark is None and now - self.start >= self.warmup:
            self.mark, self.steps0 = now, self.num_timesteps
        self.end = now
        return now - self.start < self.limit


class ExplorationLog(BaseCallback):
    def __init__(self, every):
        super().__init__()
        self.every = every
        self.used = np.zeros(len(GreenhouseEnv.ACTIONS), dtype=np.int64)

    def _on_step(self):
        self.used[self.locals["actions"]] += 1
        if self.n_calls % self.every == 0:
            share = self.used / self.used.sum()
            print(self.num_timesteps, "eps %.2f" % self.model.exploration_rate, np.round(share, 2))
            self.used[:] = 0
        return True


def make_callbacks(args, folder, budget):
    validation = EvalCallback(
        Monitor(GreenhouseEnv()),
        best_model_save_path=folder,
        n_eval_episodes=10,
        eval_freq=500,
        deterministic=True,
        verbose=0,
    )
    return CallbackList([validation, ExplorationLog(every=2000), budget])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)

    env = Monitor(GreenhouseEnv())
    model = DQN(
        "MlpPolicy", env,
        learning_rate=5e-4,
        buffer_size=50_000,
        learning_starts=200,
        batch_size=64,
        train_freq=4,
        gradient_steps=1,
        target_update_interval=500,
        exploration_fraction=0.0005,
        policy_kwargs=dict(net_arch=[64, 64]),
        seed=args.seed,
        device="cpu",
    )
    with tempfile.TemporaryDirectory() as folder:
        budget = Budget(args.seconds)
        model.learn(total_timesteps=10_000_000, callback=make_callbacks(args, folder, budget))
    n = model.num_timesteps - budget.steps0
    s = budget.end - budget.mark
    print(json.dumps({"env_steps": int(n), "seconds": round(s, 3), "env_steps_per_s": round(n / s, 2)}))


if __name__ == "__main__":
    main()
