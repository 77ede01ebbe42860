# Checks: 400 nested gymnasium wrappers work under the default recursion limit, as in Python (one extra frame per step would overflow at 2 x).
import gymnasium as gym
class Env(gym.Env):
    observation_space = gym.spaces.Discrete(2); action_space = gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None): return 0, {}
    def step(self, a): return 0, 1.0, False, False, {}
env = Env()
for _ in range(400): env = gym.Wrapper(env)
print(env.reset(), env.step(1))
class W(gym.Wrapper):
    def step(self, a):
        return super().step(a)
for _ in range(240): env = W(env)
print(env.step(1))
