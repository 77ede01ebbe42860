"""PPO on a batch of simulated cart-and-two-poles systems.  All copies of the system advance together in NumPy."""
import argparse
import json
import time

import numpy as np
import torch
from torch import nn

COPIES = 1024
HORIZON = 16


class TwinPoles:
    """Double pole balancing after Wieland; RK4 with four sub-steps."""

    G, DT, M = -9.8, 0.005, 1.0
    L = np.array([0.5, 0.25])
    m = np.array([0.1, 0.05])

    def __init__(self, copies, rng):
        self.rng = rng
        self.y = np.zeros((6, copies))
        self.age = np.zeros(copies, dtype=np.int64)
        self.scale = np.array([2.4, 3.0, 0.6, 3.0, 0.6, 3.0])[:, None]
        self.restart(np.arange(copies))

    def restart(self, which):
        self.y[:, which] = self.rng.uniform(-0.05, 0.05, (6, len(which)))
        self.age[which] = 0

    def rates(self, y, force):
        sin, cos = np.sin(y[2::2]), np.cos(y[2::2])
        m, L = self.m[:, None], self.L[:, None]
        fi = m * L * y[3::2] ** 2 * sin + 0.75 * m * cos * self.G * sin
        mi = m * (1.0 - 0.75 * cos * cos)
        acc = (force + fi.sum(0)) / (self.M + mi.sum(0))
        out = np.empty_like(y)
        out[::2] = y[1::2]
        out[1] = acc
        out[3::2] = -0.75 * (acc * cos + self.G * sin) / L
        return out

    def view(self):
        return (self.y / self.scale).T.astype(np.float32)

    def advance(self, force):
        y, h = self.y, self.DT
        for _ in range(4):
            k1 = self.rates(y, force)
            k2 = self.rates(y + 0.5 * h * k1, force)
            k3 = self.rates(y + 0.5 * h * k2, force)
            k4 = self.rates(y + h * k3, force)
            y = y + h / 6.0 * (k1 + 2.0 * (k2 + k3) + k4)
        self.y = y
        self.age += 1
        fallen = (np.abs(y[0]) > 2.4) | (np.abs(y[2]) > 0.63) | (np.abs(y[4]) > 0.63)
        ended = fallen | (self.age >= 500)
        lengths = self.age[ended]
        if ended.any():
            self.restart(np.flatnonzero(ended))
        return self.view(), np.where(fallen, -1.0, 0.1).astype(np.float32), ended, lengths


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.v = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.log_std = nn.Parameter(torch.zeros(1))

    def log_prob(self, mu, a):
        return -0.5 * ((a - mu) * torch.exp(-self.log_std)) ** 2 - self.log_std - 0.9189385


class PPO:
    def __init__(self, net, lr=7e-4, clip=0.2, gamma=0.99, lam=0.95, epochs=3, parts=8):
        self.net, self.clip, self.gamma, self.lam, self.epochs, self.parts = net, clip, gamma, lam, epochs, parts
        self.opt = torch.optim.Adam(net.parameters(), lr=lr)

    def advantages(self, rew, val, end, last):
        adv = np.empty_like(rew)
        acc = np.zeros(rew.shape[1], np.float32)
        nxt = last
        for t in range(len(rew) - 1, -1, -1):
            go_on = 1.0 - end[t]
            acc = rew[t] + self.gamma * go_on * nxt - val[t] + self.gamma * self.lam * go_on * acc
            adv[t] = acc
            nxt = val[t]
        return adv

    def update(self, obs, act, logp, adv, ret):
        n = len(obs)
        for _ in range(self.epochs):
            for idx in torch.randperm(n).chunk(self.parts):
                x = obs[idx]
                a_hat = adv[idx]
                a_hat = (a_hat - a_hat.mean()) / (a_hat.std() + 1e-8)
                ratio = torch.exp(self.net.log_prob(self.net.pi(x).squeeze(-1), act[idx]) - logp[idx])
                gain = torch.min(ratio * a_hat, ratio.clamp(1 - self.clip, 1 + self.clip) * a_hat).mean()
                miss = (self.net.v(x).squeeze(-1) - ret[idx]).square().mean()
                loss = 0.5 * miss - gain - 0.002 * self.net.log_std.sum()
                self.opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
                self.opt.step()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=8.0)
    ap.add_argument("--seed", type=int, default=0)
    cfg = ap.parse_args()
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    poles = TwinPoles(COPIES, np.random.default_rng(cfg.seed))
    net = Net()
    ppo = PPO(net)
    obs = np.zeros((HORIZON, COPIES, 6), np.float32)
    act, logp, val, rew, end = (np.zeros((HORIZON, COPIES), np.float32) for _ in range(5))
    done, rounds, recent = 0, 0, []
    x = poles.view()
    t0 = time.perf_counter()
    warm = None
    while True:
        with torch.no_grad():
            spread = float(net.log_std.exp())
            for t in range(HORIZON):
                xt = torch.from_numpy(x)
                mu = net.pi(xt).squeeze(-1)
                a = mu + spread * torch.randn_like(mu)
                obs[t], act[t], logp[t] = x, a.numpy(), net.log_prob(mu, a).numpy()
                val[t] = net.v(xt).squeeze(-1).numpy()
                x, rew[t], end[t], lengths = poles.advance(10.0 * np.clip(a.numpy(), -1, 1))
                recent.extend(lengths.tolist())
            last = net.v(torch.from_numpy(x)).squeeze(-1).numpy()
        adv = ppo.advantages(rew, val, end, last)
        ret = adv + val
        flat = [torch.from_numpy(v.reshape(-1)) for v in (act, logp, adv, ret)]
        ppo.update(torch.from_numpy(obs.reshape(-1, 6)), *flat)
        done += HORIZON * COPIES
        rounds += 1
        if rounds % 10 == 0 and recent:
            print("round %d: mean length %.1f" % (rounds, sum(recent) / len(recent)))
            recent.clear()
        now = time.perf_counter()
        if warm is None and now - t0 > 1.0:
            warm = (now, done)
        if now - t0 > cfg.seconds:
            break
    n, s = done - warm[1], now - warm[0]
    print(json.dumps({"env_steps": n, "seconds": round(s, 3), "env_steps_per_s": round(n / s, 1)}))


if __name__ == "__main__":
    main()
