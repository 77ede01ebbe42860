# Checks: gymnasium's passive checker and its warnings (wrong return types, unseeded use, deprecated patterns) come out on stderr just as in Python, once.
import gymnasium as gym, numpy as np
class Bad(gym.Env):
    observation_space = gym.spaces.Box(0, 1, (2,), np.float32); action_space = gym.spaces.Discrete(2)
    def reset(self, seed=None, options=None): return np.zeros(2), {}
    def step(self, a): return np.ones(3), "reward", 1, 0, {}
gym.register("Bad-v0", entry_point=Bad)
env = gym.make("Bad-v0")
for f in (env.reset, lambda: env.step(0), lambda: env.step(0), lambda: env.step(5)):
    try: print(f())
    except BaseException as e: print(type(e).__name__, e)
from gymnasium.utils.env_checker import check_env
try: check_env(Bad(), skip_render_check=True)
except BaseException as e: print(type(e).__name__, e)
gym.make("Nope-v0")
