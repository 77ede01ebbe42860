# Checks: stable-baselines3 A2C on a tiny own environment with DummyVecEnv, callback, Monitor: weights hash, logged values and replay of DQN buffer equal to Python's.
import os; os.makedirs("tmp", exist_ok=True); os.environ["TMPDIR"] = os.path.abspath("tmp")  # keeps left-overs of the libraries in the cwd
import gymnasium as gym, numpy as np, torch, hashlib
from stable_baselines3 import A2C, DQN
from stable_baselines3.common.callbacks import BaseCallback
torch.set_num_threads(1)
class Env(gym.Env):
    def __init__(self): self.observation_space = gym.spaces.Box(-1, 1, (2,), np.float32); self.action_space = gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None): super().reset(seed=seed); self.t = 0; return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}
    def step(self, a): self.t += 1; return self.np_random.uniform(-1, 1, 2).astype(np.float32), float(a), self.t >= 7, False, {}
class Cb(BaseCallback):
    n = 0
    def _on_step(self): Cb.n += 1; return True
def h(m): return hashlib.md5(b"".join(p.detach().numpy().tobytes() for p in m.policy.parameters())).hexdigest()
m = A2C("MlpPolicy", Env(), seed=1, n_steps=5, device="cpu").learn(60, callback=Cb()); print(h(m), Cb.n, m.num_timesteps)
d = DQN("MlpPolicy", Env(), seed=1, learning_starts=10, buffer_size=100, batch_size=8, device="cpu").learn(40); print(h(d), d.replay_buffer.size(), d.replay_buffer.sample(3).rewards.ravel().tolist())
m.save("m.zip"); print(h(A2C.load("m.zip", device="cpu")) == h(m))
