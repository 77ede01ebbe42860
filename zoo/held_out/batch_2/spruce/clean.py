# SAC with an ensemble critic on LunarLander (continuous)
import argparse
import json
import math
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F


class EnsembleQ(nn.Module):
    """M critics in one batched matrix product."""

    def __init__(self, M, d_in, h):
        super().__init__()
        dims = [(d_in, h), (h, h), (h, 1)]
        self.W = nn.ParameterList([nn.Parameter(torch.empty(M, i, o).uniform_(-1, 1) / math.sqrt(i)) for i, o in dims])
        self.B = nn.ParameterList([nn.Parameter(torch.zeros(M, 1, o)) for _, o in dims])
        self.M = M

    def forward(self, s, a):
        x = torch.cat([s, a], -1).expand(self.M, -1, -1)
        x = F.relu(torch.baddbmm(self.B[0], x, self.W[0]), inplace=True)
        x = F.relu(torch.baddbmm(self.B[1], x, self.W[1]), inplace=True)
        return torch.baddbmm(self.B[2], x, self.W[2]).squeeze(-1)


class Pi(nn.Module):
    def __init__(self, d_s, d_a, h):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(d_s, h), nn.ReLU(inplace=True), nn.Linear(h, h), nn.ReLU(inplace=True),
                               nn.Linear(h, 2 * d_a))

    def forward(self, s):
        mu, ls = self.f(s).chunk(2, -1)
        ls = ls.clamp(-8, 2)
        e = torch.randn_like(mu)
        u = mu + ls.exp() * e
        lp = (-0.5 * e.square() - ls - 0.9189385 - 2 * (0.6931472 - u - F.softplus(-2 * u))).sum(-1)
        return torch.tanh(u), lp

    def sample(self, s):
        mu, ls = self.f(s).chunk(2, -1)
        return torch.tanh(mu + ls.clamp(-8, 2).exp() * torch.randn_like(mu))


class Ring:
    def __init__(self, cap, d_s, d_a, rng):
        # s | a | r | d | s2 side by side: one gather per batch
        self.data = np.zeros((cap, 2 * d_s + d_a + 2), np.float32)
        self.cuts = [d_s, d_a, 1, 1, d_s]
        self.cap, self.n, self.i, self.rng = cap, 0, 0, rng

    def put(self, s, a, r, d, s2):
        row = self.data[self.i]
        k, m = len(s), len(a)
        row[:k] = s
        row[k:k + m] = a
        row[k + m] = r
        row[k + m + 1] = d
        row[k + m + 2:] = s2
        self.i = (self.i + 1) % self.cap
        self.n = min(self.n + 1, self.cap)

    def get(self, k):
        return torch.from_numpy(self.data[self.rng.integers(0, self.n, k)]).split(self.cuts, dim=1)


class Learner:
    def __init__(self, d_s, d_a, rng, h=128, M=2, gamma=0.99, tau=0.005, lr=5e-4, batch=128):
        self.pi, self.q, self.qt = Pi(d_s, d_a, h), EnsembleQ(M, d_s + d_a, h), EnsembleQ(M, d_s + d_a, h)
        self.qt.load_state_dict(self.q.state_dict())
        self.qt.requires_grad_(False)
        self.log_alpha = torch.tensor(-1.0, requires_grad=True)
        self.opt_pi = torch.optim.Adam(self.pi.parameters(), lr=lr, fused=True)
        self.opt_q = torch.optim.Adam(self.q.parameters(), lr=lr, fused=True)
        self.opt_al = torch.optim.Adam([self.log_alpha], lr=lr, fused=True)
        self.live, self.lag = list(self.q.parameters()), list(self.qt.parameters())
        self.ring = Ring(100_000, d_s, d_a, rng)
        self.gamma, self.tau, self.batch, self.h_target = gamma, tau, batch, -float(d_a)
        self.count = 0

    def learn(self):
        s, a, r, d, s2 = self.ring.get(self.batch)
        with torch.no_grad():
            alpha = self.log_alpha.exp()
            a2, lp2 = self.pi(s2)
            y = r[:, 0] + self.gamma * (1 - d[:, 0]) * (self.qt(s2, a2).amin(0) - alpha * lp2)
        q_loss = (self.q(s, a) - y).square().mean(1).sum()
        self.opt_q.zero_grad()
        q_loss.backward()
        self.opt_q.step()

        self.count += 1
        if self.count % 2 == 0:
            for p in self.live:
                p.requires_grad_(False)
            an, lp = self.pi(s)
            pi_loss = (alpha * lp - self.q(s, an).amin(0)).mean()
            self.opt_pi.zero_grad()
            pi_loss.backward()
            self.opt_pi.step()
            for p in self.live:
                p.requires_grad_(True)
            al_loss = -self.log_alpha * (lp.detach().mean() + self.h_target)
            self.opt_al.zero_grad()
            al_loss.backward()
            self.opt_al.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.lag, self.live, self.tau)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=20)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    rng = np.random.default_rng(args.seed)
    env = gym.make("LunarLander-v3", continuous=True)
    d_s, d_a = env.observation_space.shape[0], env.action_space.shape[0]
    L = Learner(d_s, d_a, rng)
    s, _ = env.reset(seed=args.seed)
    n, score, scores = 0, 0.0, []
    mark = None
    t0 = time.perf_counter()
    while time.perf_counter() - t0 < args.seconds:
        if n < 1000:
            a = rng.uniform(-1, 1, d_a).astype(np.float32)
        else:
            with torch.inference_mode():
                a = L.pi.sample(torch.from_numpy(s)).numpy()
        s2, r, term, trunc, _ = env.step(a)
        L.ring.put(s, a, r * 0.1, term, s2)
        s, score, n = s2, score + r, n + 1
        if term or trunc:
            scores.append(score)
            score = 0.0
            s, _ = env.reset()
        if n >= 1000:
            L.learn()
            if L.count == 20:
                mark = (time.perf_counter(), n)
    span = time.perf_counter() - mark[0]
    print(f"{len(scores)} landings, recent mean {np.mean(scores[-10:]):.1f}")
    print(json.dumps({"env_steps": n - mark[1], "seconds": span, "env_steps_per_s": (n - mark[1]) / span, "updates": L.count}))


if __name__ == "__main__":
    main()
