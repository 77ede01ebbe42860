# Checks: SyncVectorEnv and AsyncVectorEnv (fork and spawn): observations, autoreset, call, set_attr, an env that raises in a worker, close; exit code.
import gymnasium as gym, numpy as np
class Env(gym.Env):
    def __init__(self, k=0): self.k = k; self.observation_space = gym.spaces.Box(-9, 9, (1,), np.float32); self.action_space = gym.spaces.Discrete(4)
    def reset(self, *, seed=None, options=None): super().reset(seed=seed); self.t = 0; return np.array([self.np_random.random()], np.float32), {}
    def step(self, a):
        if a == 3: raise ValueError("bad action in worker")
        self.t += 1; return np.array([self.k + self.t], np.float32), 1.0, self.t == 2, False, {}
def make0(): return Env(0)
def make1(): return Env(5)
if __name__ == "__main__":
    for v in (gym.vector.SyncVectorEnv([make0, make1]), gym.vector.AsyncVectorEnv([make0, make1], context="fork")):
        print(type(v).__name__, v.reset(seed=3)[0].ravel())
        for a in ([0, 1], [1, 2], [0, 0]):
            o, r, te, tr, i = v.step(np.array(a)); print(o.ravel(), r, te, tr)
        v.set_attr("k", [100, 200]); print(v.call("get_wrapper_attr", "k"), v.step(np.array([0, 0]))[0].ravel())
        if type(v).__name__ == "SyncVectorEnv": v.close()
    v.step(np.array([0, 3]))
