"""DQN from pixels on a home-made 'catch the fruit' with Atari-like wrappers."""
import argparse
import json
import random
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image


class FruitEnv(gym.Env):
    """160x210 RGB screen, a basket that moves left/right, falling fruit."""

    WIDTH, HEIGHT = 160, 210
    LUMPS = ((214, 92, 92), (92, 186, 92), (214, 214, 64))

    def __init__(self):
        self.observation_space = gym.spaces.Box(0, 255, (self.HEIGHT, self.WIDTH, 3), np.uint8)
        self.action_space = gym.spaces.Discrete(3)
        self.background = np.zeros((self.HEIGHT, self.WIDTH, 3), np.uint8)
        self.background[:] = (20, 24, 60)
        self.background[196:] = (70, 50, 30)

    def _drop(self):
        self.fx = float(self.np_random.integers(8, self.WIDTH - 8))
        self.fy = 10.0
        self.drift = float(self.np_random.uniform(-0.8, 0.8))
        self.kind = int(self.np_random.integers(3))

    def _screen(self):
        img = self.background.copy()
        x, y = int(self.fx), int(self.fy)
        img[y - 5 : y + 5, max(0, x - 5) : x + 5] = self.LUMPS[self.kind]
        b = int(self.basket)
        img[188:196, b - 12 : b + 12] = (220, 220, 220)
        return img

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.basket = self.WIDTH / 2
        self.fruits = 0
        self._drop()
        return self._screen(), {}

    def step(self, action):
        self.basket = min(max(self.basket + (0, -3, 3)[action], 14), self.WIDTH - 14)
        self.fy += 3.0
        self.fx = min(max(self.fx + self.drift, 6), self.WIDTH - 6)
        reward = 0.0
        if self.fy >= 186:
            reward = 1.0 if abs(self.fx - self.basket) < 14 else -1.0
            self.fruits += 1
            self._drop()
        return self._screen(), reward, self.fruits >= 10, False, {}


class SkipFrames(gym.Wrapper):
    def __init__(self, env, skip=4):
        super().__init__(env)
        self.skip = skip

    def step(self, action):
        total = 0.0
        for _ in range(self.skip):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += reward
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info


class WarpFrame(gym.ObservationWrapper):
    """RGB screen -> 42x42 gray levels."""

    def __init__(self, env, side=42):
        super().__init__(env)
        self.side = side
        self.observation_space = gym.spaces.Box(0, 255, (side, side), np.uint8)

    def observation(self, obs):
        gray = Image.fromarray(obs).convert("L")
        small = gray.resize((self.side, self.side), Image.LANCZOS)
        return np.asarray(small)


class StackFrames(gym.ObservationWrapper):
    def __init__(self, env, k=3):
        super().__init__(env)
        h, w = env.observation_space.shape
        self.observation_space = gym.spaces.Box(0, 255, (k, h, w), np.uint8)
        self.frames = np.zeros((k, h, w), np.uint8)

    def reset(self, **kwargs):
        self.frames[:] = 0
        return super().reset(**kwargs)

    def observation(self, obs):
        self.frames[:-1] = self.frames[1:]
        self.frames[-1] = obs
        return self.frames.copy()


def make_env():
    env = FruitEnv()
    env = WarpFrame(env)
    env = SkipFrames(env, 4)
    env = StackFrames(env, 3)
    return env


class ConvQ(nn.Module):
    def __init__(self, channels, actions):
        super().__init__()
        self.c1 = nn.Conv2d(channels, 8, 6, stride=4)
        self.c2 = nn.Conv2d(8, 16, 4, stride=2)
        self.fc = nn.Linear(16 * 4 * 4, 64)
        self.out = nn.Linear(64, actions)

    def forward(self, x):
        x = x.float() / 255.0
        x = F.relu(self.c1(x))
        x = F.relu(self.c2(x)).flatten(1)
        return self.out(F.relu(self.fc(x)))


class Replay:
    def __init__(self, capacity, shape):
        self.s = np.zeros((capacity, *shape), np.uint8)
        self.s2 = np.zeros((capacity, *shape), np.uint8)
        self.a = np.zeros(capacity, np.int64)
        self.r = np.zeros(capacity, np.float32)
        self.d = np.zeros(capacity, np.float32)
        self.capacity, self.pos, self.full = capacity, 0, False

    def add(self, s, a, r, s2, d):
        i = self.pos
        self.s[i], self.a[i], self.r[i], self.s2[i], self.d[i] = s, a, r, s2, d
        self.pos = (i + 1) % self.capacity
        self.full = self.full or self.pos == 0

    def sample(self, n):
        idx = np.random.randint(0, self.capacity if self.full else self.pos, n)
        return [torch.from_numpy(x[idx]) for x in (self.s, self.a, self.r, self.s2, self.d)]


def learn(q, q_target, optim, batch, gamma=0.97):
    s, a, r, s2, d = batch
    with torch.no_grad():
        y = r + gamma * (1 - d) * q_target(s2).max(1).values
    loss = F.smooth_l1_loss(q(s).gather(1, a[:, None]).squeeze(1), y)
    optim.zero_grad()
    loss.backward()
    optim.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    env = make_env()
    q = ConvQ(3, env.action_space.n)
    q_target = ConvQ(3, env.action_space.n)
    q_target.load_state_dict(q.state_dict())
    optim = torch.optim.Adam(q.parameters(), lr=5e-4)
    replay = Replay(10_000, env.observation_space.shape)

    s, _ = env.reset(seed=args.seed)
    n = updates = 0
    returns, ret = [], 0.0
    base = None
    t_begin = time.perf_counter()
    while True:
        eps = max(0.05, 1.0 - n / 4000)
        if random.random() < eps:
            a = random.randrange(3)
        else:
            with torch.no_grad():
                a = int(q(torch.from_numpy(s)[None]).argmax())
        s2, r, term, trunc, _ = env.step(a)
        replay.add(s, a, r, s2, float(term))
        s = s2
        ret += r
        n += 1
        if n >= 200 and n % 4 == 0:
            learn(q, q_target, optim, replay.sample(32))
            updates += 1
            if updates % 250 == 0:
                q_target.load_state_dict(q.state_dict())
        if term or trunc:
            returns.append(ret)
            ret = 0.0
            s, _ = env.reset()
            if len(returns) % 10 == 0:
                print(f"{n} decisions, mean return {np.mean(returns[-10:]):.2f}")
        now = time.perf_counter()
        if base is None and now - t_begin > 1.2:
            base = (now, n)
        if now - t_begin > args.seconds:
            break
    k, s = n - base[1], now - base[0]
    print(json.dumps({"env_steps": k, "seconds": round(s, 3), "env_steps_per_s": round(k / s, 1), "updates": updates}))


if __name__ == "__main__":
    main()
