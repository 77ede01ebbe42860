# Checks: an exception raised in env.step below gymnasium wrappers: traceback contains exactly Python's frames.
import gymnasium as gym
from gymnasium import spaces
class Env(gym.Env):
    observation_space = spaces.Discrete(3)
    action_space = spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}
    def step(self, action):
        if action == 1:
            raise RuntimeError("simulator crashed")
        return 0, 0.0, False, False, {}
env = gym.wrappers.TimeLimit(gym.wrappers.OrderEnforcing(Env()), 5)
try:
    env.step(0)
except gym.error.ResetNeeded as e:
    print(e)
env.reset(seed=1)
print(env.step(0))
env.step(1)
