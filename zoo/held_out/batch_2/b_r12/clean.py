"""PPO in one file on a batch of reacher arms, all arms simulated together with NumPy."""
import argparse
import json
import time

import numpy as np
import torch
import torch.nn as nn


class Arms:
    """n planar arms with two joints each; the finger has to get to a target."""

    def __init__(self, n, seed, limit=100):
        self.n, self.limit = n, limit
        self.rng = np.random.default_rng(seed)
        self.angle = np.zeros((n, 2), np.float32)
        self.speed = np.zeros((n, 2), np.float32)
        self.target = np.zeros((n, 2), np.float32)
        self.age = self.rng.integers(0, limit, n)
        self.obs = np.zeros((n, 10), np.float32)
        self._fresh(np.arange(n))
        self._look()

    def _fresh(self, idx):
        k = len(idx)
        self.angle[idx] = self.rng.uniform(-np.pi, np.pi, (k, 2))
        self.speed[idx] = 0.0
        radius, phi = np.sqrt(self.rng.uniform(0.05, 1, k)), self.rng.uniform(-np.pi, np.pi, k)
        self.target[idx, 0], self.target[idx, 1] = radius * np.cos(phi), radius * np.sin(phi)

    def _look(self):
        a, b = self.angle[:, 0], self.angle.sum(1)
        ca, sa, cb, sb = np.cos(a), np.sin(a), np.cos(b), np.sin(b)
        o = self.obs
        o[:, 0], o[:, 1], o[:, 2], o[:, 3] = ca, sa, cb, sb
        o[:, 4:6] = self.speed
        o[:, 6:8] = self.target
        o[:, 8] = 0.5 * (ca + cb) - self.target[:, 0]
        o[:, 9] = 0.5 * (sa + sb) - self.target[:, 1]
        return np.hypot(o[:, 8], o[:, 9])

    def step(self, torque):
        torque = np.clip(torque, -1, 1)
        self.speed += 0.1 * (4.0 * torque - 0.8 * self.speed)
        self.angle += 0.1 * self.speed
        self.age += 1
        far = self._look()
        reward = np.exp(-4 * far) - 0.1 * far - 0.01 * (torque ** 2).sum(1)
        over = self.age >= self.limit
        if over.any():
            idx = np.flatnonzero(over)
            self._fresh(idx)
            self.age[idx] = 0
            self._look()
        return self.obs, reward, over


def layer(a, b, gain):
    m = nn.Linear(a, b)
    nn.init.orthogonal_(m.weight, gain)
    nn.init.zeros_(m.bias)
    return m


class Agent(nn.Module):
    def __init__(self, n_obs, n_act, width=128):
        super().__init__()
        self.actor = nn.Sequential(layer(n_obs, width, 1.4), nn.Tanh(), layer(width, width, 1.4), nn.Tanh(),
                                   layer(width, n_act, 0.01))
        self.critic = nn.Sequential(layer(n_obs, width, 1.4), nn.Tanh(), layer(width, width, 1.4), nn.Tanh(),
                                    layer(width, 1, 1.0))
        self.log_std = nn.Parameter(torch.full((n_act,), -0.5))

    def log_prob(self, obs, act):
        z = (act - self.actor(obs)) * (-self.log_std).exp()
        return -(0.5 * z * z + self.log_std).sum(-1)

    def sample(self, obs):
        noise = torch.randn(obs.shape[0], self.log_std.shape[0])
        act = self.actor(obs) + noise * self.log_std.exp()
        return act, -(0.5 * noise * noise + self.log_std).sum(-1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=8.0)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--envs", type=int, default=64)
    ap.add_argument("--horizon", type=int, default=64)
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--minibatch", type=int, default=1024)
    a = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(a.seed)
    gamma, lam, clip = 0.98, 0.95, 0.2

    arms = Arms(a.envs, a.seed)
    agent = Agent(10, 2)
    opt = torch.optim.Adam(agent.parameters(), lr=5e-4, eps=1e-5, fused=True)
    T, N = a.horizon, a.envs
    obs = torch.zeros(T, N, 10)
    act = torch.zeros(T, N, 2)
    logp, rew, done = (torch.zeros(T, N) for _ in range(3))
    adv = torch.zeros(T, N)
    steps = steps0 = updates = 0
    mark = None
    start = now = time.perf_counter()
    while now - start < a.seconds:
        with torch.no_grad():
            for t in range(T):
                obs[t] = torch.from_numpy(arms.obs)
                act[t], logp[t] = agent.sample(obs[t])
                _, r, over = arms.step(act[t].numpy())
                rew[t] = torch.from_numpy(r)
                done[t] = torch.from_numpy(over)
            steps += T * N
            val = agent.critic(obs).squeeze(-1)
            nxt = agent.critic(torch.from_numpy(arms.obs)).squeeze(-1)
            live = gamma * (1 - done)
            delta = rew - val
            delta[:-1] += live[:-1] * val[1:]
            delta[-1] += live[-1] * nxt
            carry = torch.zeros(N)
            for t in range(T - 1, -1, -1):
                carry = delta[t] + lam * live[t] * carry
                adv[t] = carry
            ret = (adv + val).view(-1)
            good = ((adv - adv.mean()) / (adv.std() + 1e-8)).view(-1)
        O, A, L = obs.view(-1, 10), act.view(-1, 2), logp.view(-1)
        for _ in range(a.epochs):
            for k in torch.randperm(T * N).split(a.minibatch):
                ratio = (agent.log_prob(O[k], A[k]) - L[k]).exp()
                g = good[k]
                pg = -torch.min(ratio * g, ratio.clamp(1 - clip, 1 + clip) * g).mean()
                v = 0.5 * (agent.critic(O[k]).squeeze(-1) - ret[k]).square().mean()
                loss = pg + 0.5 * v - 0.001 * agent.log_std.sum()
                opt.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                opt.step()
        updates += 1
        if updates % 10 == 0:
            print(f"{steps:8d} steps   reward per step {rew.mean().item():.3f}")
        now = time.perf_counter()
        if mark is None and now - start >= 1.0:
            mark, steps0 = now, steps
    n, s = steps - steps0, now - mark
    print(json.dumps({"env_steps": n, "seconds": round(s, 3), "env_steps_per_s": round(n / s, 2), "updates": updates}))


if __name__ == "__main__":
    main()
