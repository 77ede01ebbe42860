"""PPO of Stable-Baselines3 on CartPole, with two environment processes."""

import sys

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv

torch.set_num_threads(1)


def main(steps: int) -> None:
    env = make_vec_env("CartPole-v1", n_envs=2, seed=1, vec_env_cls=SubprocVecEnv)
    model = PPO("MlpPolicy", env, n_steps=512, seed=1)
    model.learn(total_timesteps=steps)
    env.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
