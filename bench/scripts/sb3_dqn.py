"""DQN of Stable-Baselines3 on CartPole, as its documentation shows it."""

import sys

import gymnasium as gym
import torch
from stable_baselines3 import DQN

torch.set_num_threads(1)


def main(steps: int) -> None:
    env = gym.make("CartPole-v1")
    model = DQN("MlpPolicy", env, learning_starts=500, train_freq=4, gradient_steps=1, seed=1)
    model.learn(total_timesteps=steps)


if __name__ == "__main__":
    main(int(sys.argv[1]))
