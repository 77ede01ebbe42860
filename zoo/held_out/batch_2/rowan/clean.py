"""PPO on a batch of point-mass racers, all simulated at once in numpy."""
import argparse
import json
import time

import numpy as np
import torch
import torch.nn as nn

LOG_2PI = 1.8378770664093453


class Racers:
    """Each racer must pass gates in turn; acceleration control with drag."""

    def __init__(self, n, seed):
        self.n = n
        self.rng = np.random.default_rng(seed)
        self.p = np.zeros((n, 2), np.float32)
        self.v = np.zeros((n, 2), np.float32)
        self.gates = np.zeros((n, 2, 2), np.float32)
        self.age = np.zeros(n, np.int32)
        self.obs = np.zeros((n, 8), np.float32)
        self._spawn(np.arange(n))
        self._observe()

    def _spawn(self, ids):
        k = len(ids)
        self.p[ids] = 0
        self.v[ids] = 0
        self.gates[ids] = self.rng.uniform(-2, 2, (k, 2, 2))
        self.age[ids] = 0

    def _observe(self):
        self.obs[:, 0:2] = self.p
        self.obs[:, 2:4] = self.v
        self.obs[:, 4:6] = self.gates[:, 0] - self.p
        self.obs[:, 6:8] = self.gates[:, 1] - self.gates[:, 0]
        return self.obs

    def step(self, a):
        a = np.clip(a, -1, 1)
        before = np.linalg.norm(self.gates[:, 0] - self.p, axis=1)
        self.v += 0.1 * (2.0 * a - 0.5 * self.v)
        self.p += 0.1 * self.v
        after = np.linalg.norm(self.gates[:, 0] - self.p, axis=1)
        self.age += 1
        hit = np.flatnonzero(after < 0.3)
        reward = (before - after).astype(np.float32)
        if hit.size:
            reward[hit] += 1.0
            self.gates[hit, 0] = self.gates[hit, 1]
            self.gates[hit, 1] = self.rng.uniform(-2, 2, (hit.size, 2))
        done = self.age >= 200
        if done.any():
            self._spawn(np.flatnonzero(done))
        return self._observe(), reward, done


class GaussianActorCritic(nn.Module):
    def __init__(self, o, a, width):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(o, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, a))
        self.vf = nn.Sequential(nn.Linear(o, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.log_std = nn.Parameter(torch.full((a,), -0.5))

    def log_prob(self, mu, act):
        z = (act - mu) * torch.exp(-self.log_std)
        return -0.5 * (z * z).sum(-1) - self.log_std.sum() - 0.5 * LOG_2PI * act.shape[-1]


class PPO:
    def __init__(self, env, horizon=32, epochs=6, minibatch=1024, width=128, gamma=0.98, lam=0.95, clip=0.2):
        self.env, self.T, self.epochs, self.mb = env, horizon, epochs, minibatch
        self.gamma, self.lam, self.clip = gamma, lam, clip
        self.net = GaussianActorCritic(8, 2, width)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=5e-4, fused=True)
        n = env.n
        self.o = torch.zeros(horizon + 1, n, 8)
        self.a = torch.zeros(horizon, n, 2)
        self.lp = torch.zeros(horizon, n)
        self.r = np.zeros((horizon, n), np.float32)
        self.d = np.zeros((horizon, n), np.float32)

    @torch.no_grad()
    def collect(self):
        net = self.net
        std = net.log_std.exp()
        noise = torch.randn(self.T, self.env.n, 2) * std
        self.o[0] = torch.from_numpy(self.env.obs)
        for t in range(self.T):
            mu = net.pi(self.o[t])
            torch.add(mu, noise[t], out=self.a[t])
            self.lp[t] = net.log_prob(mu, self.a[t])
            obs, self.r[t], self.d[t] = self.env.step(self.a[t].numpy())
            self.o[t + 1] = torch.from_numpy(obs)

    @torch.no_grad()
    def targets(self):
        v = self.net.vf(self.o).squeeze(-1).numpy()
        adv = np.empty_like(self.r)
        acc = np.zeros(self.env.n, np.float32)
        live = 1.0 - self.d
        for t in range(self.T - 1, -1, -1):
            delta = self.r[t] + self.gamma * live[t] * v[t + 1] - v[t]
            acc = delta + self.gamma * self.lam * live[t] * acc
            adv[t] = acc
        ret = adv + v[:-1]
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        return torch.from_numpy(adv).view(-1), torch.from_numpy(ret).view(-1)

    def update(self):
        adv, ret = self.targets()
        o, a, lp = self.o[:-1].reshape(-1, 8), self.a.view(-1, 2), self.lp.view(-1)
        n = o.shape[0]
        for _ in range(self.epochs):
            perm = torch.randperm(n)
            for i in range(0, n, self.mb):
                k = perm[i:i + self.mb]
                ob, adb = o[k], adv[k]
                ratio = torch.exp(self.net.log_prob(self.net.pi(ob), a[k]) - lp[k])
                pg = -torch.min(ratio * adb, ratio.clamp(1 - self.clip, 1 + self.clip) * adb).mean()
                vf = (self.net.vf(ob).squeeze(-1) - ret[k]).square().mean()
                loss = pg + 0.5 * vf - 0.001 * self.net.log_std.sum()
                self.opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
                self.opt.step()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=20)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    env = Racers(128, args.seed)
    ppo = PPO(env)
    steps, rounds, base = 0, 0, 0
    t0 = t1 = time.perf_counter()
    while time.perf_counter() - t0 < args.seconds:
        ppo.collect()
        ppo.update()
        steps += ppo.T * env.n
        rounds += 1
        if rounds == 1:
            t1, base = time.perf_counter(), steps
        if rounds % 10 == 0:
            print(f"round {rounds} reward {ppo.r.mean():+.4f}")
    span = time.perf_counter() - t1
    print(json.dumps({"env_steps": steps - base, "seconds": span, "env_steps_per_s": (steps - base) / span}))


if __name__ == "__main__":
    main()
