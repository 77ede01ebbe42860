"""DQN of Stable-Baselines3 on MountainCar, with a callback that follows the training."""

import gymnasium as gym
from progress import tick
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback


class Progress(BaseCallback):
    """Counts steps, and keeps the last reward of each episode."""

    def __init__(self):
        super().__init__()
        self.last_rewards = []

    def _on_step(self) -> bool:
        if self.locals["dones"][0]:
            self.last_rewards = [*self.last_rewards[-99:], float(self.locals["rewards"][0])]
        tick()
        return True


env = gym.make("MountainCar-v0")
model = DQN(
    "MlpPolicy",
    env,
    learning_rate=4e-3,
    batch_size=64,
    buffer_size=10_000,
    learning_starts=100,
    gamma=0.98,
    train_freq=4,
    gradient_steps=1,
    exploration_fraction=1e-6,
    exploration_final_eps=0.07,
    policy_kwargs={"net_arch": [64, 64]},
    seed=2,
)
model.learn(total_timesteps=10**9, callback=Progress())
