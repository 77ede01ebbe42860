# Checks: gymnasium: registered own env through make (wrappers order, spec, str, unwrapped, has_wrapper_attr), user wrappers (Observation/Reward/Action), seeds, spaces samples, TimeLimit, RecordEpisodeStatistics without times.
import gymnasium as gym, numpy as np
class Env(gym.Env):
    metadata = {"render_modes": ["rgb_array"]}
    def __init__(self, n=5, render_mode=None): self.n = n; self.render_mode = render_mode; self.observation_space = gym.spaces.Box(-1, 1, (2,), np.float32); self.action_space = gym.spaces.Discrete(3)
    def reset(self, *, seed=None, options=None): super().reset(seed=seed); self.t = 0; return self.np_random.random(2).astype(np.float32), {"o": options}
    def step(self, a): self.t += 1; return self.np_random.random(2).astype(np.float32), float(a), self.t >= self.n, False, {"t": self.t}
gym.register("Mine-v0", entry_point=Env, max_episode_steps=4)
env = gym.make("Mine-v0", n=9)
print(env, type(env).__name__, env.spec.id, env.spec.max_episode_steps, type(env.unwrapped) is Env, env.has_wrapper_attr("t"), env.get_wrapper_attr("n"))
class R(gym.RewardWrapper):
    def reward(self, r): return r * 2
class O(gym.ObservationWrapper):
    def observation(self, o): return o.round(3)
class A(gym.ActionWrapper):
    def action(self, a): return 2 - a
env = gym.wrappers.RecordEpisodeStatistics(A(O(R(env))))
env.action_space.seed(0)
o, i = env.reset(seed=7, options={"x": 1}); print(o, i)
for k in range(6):
    a = env.action_space.sample(); o, r, te, tr, info = env.step(a); info.get("episode", {}).pop("t", None); print(k, a, o, r, te, tr, info)
    if te or tr: break
print(env, sorted(k for k in vars(env.unwrapped)), env.np_random.random())
env.close(); print(gym.Env.step.__qualname__, gym.Wrapper.step.__module__, gym.Env.__init_subclass__, "step" in Env.__dict__, gym.make.__module__, type(gym.make).__name__, sorted(vars(gym.Env))[:40])
