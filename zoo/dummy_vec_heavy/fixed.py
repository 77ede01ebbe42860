"""Stable-Baselines3 PPO on four copies of a heavy simulation, each in a process of its own."""

import torch
from airfoil import FlowEnv
from meter import Meter, parse_args
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv

torch.set_num_threads(1)

NUM_ENVS, N_STEPS = 4, 32
WARMUP = 2 * NUM_ENVS * N_STEPS


class Stop(BaseCallback):
    """Ends training when the time is up."""

    def __init__(self, meter):
        super().__init__()
        self.meter = meter

    def _on_step(self):
        return self.meter.more(NUM_ENVS)


def main():
    args = parse_args()
    env = make_vec_env(FlowEnv, n_envs=NUM_ENVS, seed=args.seed, vec_env_cls=SubprocVecEnv)
    model = PPO("MlpPolicy", env, n_steps=N_STEPS, batch_size=64, n_epochs=4, seed=args.seed, device="cpu")
    meter = Meter(args, WARMUP)
    model.learn(total_timesteps=10**9, callback=Stop(meter))
    env.close()
    meter.report()


if __name__ == "__main__":
    main()
