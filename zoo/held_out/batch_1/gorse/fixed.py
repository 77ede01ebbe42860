"""A2C with random network distillation on a sparse key-and-door corridor."""
import argparse
import json
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class Corridors:
    """A bundle of corridors. The key is at the left end, the door at the right end."""

    def __init__(self, bundle, length, rng):
        self.bundle, self.length, self.rng = bundle, length, rng
        self.limit = 6 * length
        self.x = np.full(bundle, length // 2)
        self.key = np.zeros(bundle, bool)
        self.age = np.zeros(bundle, int)
        self.eye = np.eye(length, dtype=np.float32)

    def view(self):
        out = np.empty((self.bundle, self.length + 1), np.float32)
        out[:, :-1] = self.eye[self.x]
        out[:, -1] = self.key
        return out

    def advance(self, move):
        slip = self.rng.random(self.bundle) < 0.05
        self.x = np.clip(self.x + np.where(slip, 0, 2 * move - 1), 0, self.length - 1)
        self.key |= self.x == 0
        win = self.key & (self.x == self.length - 1)
        self.age += 1
        over = win | (self.age >= self.limit)
        seen = self.view()
        if over.any():
            self.x[over] = self.length // 2
            self.key[over] = False
            self.age[over] = 0
        return seen, self.view(), win.astype(np.float32), over


class Surprise:
    """Prediction error of a trained network against a fixed random one."""

    def __init__(self, n_in, n_feat=32, lr=1e-4):
        self.fixed = self._net(n_in, n_feat).requires_grad_(False)
        self.trained = self._net(n_in, n_feat)
        self.opt = torch.optim.Adam(self.trained.parameters(), lr=lr)
        self.n, self.mean, self.m2 = 0, 0.0, 0.0

    @staticmethod
    def _net(i, o):
        return nn.Sequential(nn.Linear(i, 64), nn.ReLU(), nn.Linear(64, o))

    def error(self, seen):
        return (self.trained(seen) - self.fixed(seen)).pow(2).mean(1)

    def normalise(self, e):
        k, mean = len(e), float(e.mean())
        delta, total = mean - self.mean, self.n + k
        self.m2 += float(((e - mean) ** 2).sum()) + delta * delta * self.n * k / total
        self.mean += delta * k / total
        self.n = total
        return e / ((self.m2 / self.n) ** 0.5 + 1e-8)

    @torch.no_grad()
    def reward(self, seen):
        return self.normalise(self.error(torch.from_numpy(seen)).numpy()).astype(np.float32)

    def fit(self, seen):
        loss = self.error(seen).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()


class Heads(nn.Module):
    def __init__(self, n_in, n_act=2):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(n_in, 64), nn.Tanh())
        self.pi, self.v_ext, self.v_int = nn.Linear(64, n_act), nn.Linear(64, 1), nn.Linear(64, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.pi(h), self.v_ext(h).squeeze(-1), self.v_int(h).squeeze(-1)


def discounted(r, v_last, keep, gamma):
    out, acc = np.empty_like(r), v_last
    for t in range(len(r) - 1, -1, -1):
        acc = r[t] + gamma * keep[t] * acc
        out[t] = acc
    return torch.from_numpy(out)


def train(seconds, seed, bundle=16, length=21, horizon=16):
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    world = Corridors(bundle, length, rng)
    heads, surprise = Heads(length + 1), Surprise(length + 1)
    opt = torch.optim.RMSprop(heads.parameters(), lr=1e-3, eps=1e-5)
    obs = world.view()
    O = np.zeros((horizon, bundle, length + 1), np.float32)
    S = np.zeros_like(O)
    A = np.zeros((horizon, bundle), np.int64)
    Re, K = np.zeros((horizon, bundle), np.float32), np.zeros((horizon, bundle), np.float32)

    rounds, wins, first = 0, 0, None
    begin = time.perf_counter()
    while (now := time.perf_counter()) - begin < seconds:
        if first is None and now - begin > 0.5:
            first = (now, rounds)
        for t in range(horizon):
            with torch.no_grad():
                logits = heads.pi(heads.trunk(torch.from_numpy(obs))).numpy()
            gumbel = rng.gumbel(size=logits.shape)
            O[t] = obs
            A[t] = (logits + gumbel).argmax(1)
            S[t], obs, Re[t], over = world.advance(A[t])
            K[t] = 1.0 - over
            wins += int(Re[t].sum())
        Ri = surprise.reward(S.reshape(-1, length + 1)).reshape(horizon, bundle)
        with torch.no_grad():
            _, ve, vi = heads(torch.from_numpy(obs))
        ret_e = discounted(Re, ve.numpy(), K, 0.99)
        ret_i = discounted(Ri, vi.numpy(), np.ones_like(K), 0.97)

        logits, ve, vi = heads(torch.from_numpy(O))
        logp = F.log_softmax(logits, -1)
        adv = 2.0 * (ret_e - ve.detach()) + 0.3 * (ret_i - vi.detach())
        chosen = logp.gather(2, torch.from_numpy(A).unsqueeze(2)).squeeze(2)
        entropy = -(logp.exp() * logp).sum(-1).mean()
        loss = (-(chosen * adv).mean() + 0.5 * F.mse_loss(ve, ret_e) + 0.5 * F.mse_loss(vi, ret_i)
                - 0.01 * entropy)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(heads.parameters(), 0.5)
        opt.step()
        surprise.fit(torch.from_numpy(S).view(-1, length + 1))
        rounds += 1
    dt = now - first[0]
    n = (rounds - first[1]) * horizon * bundle
    print(f"doors opened: {wins}")
    return {"env_steps": n, "seconds": round(dt, 3), "env_steps_per_s": round(n / dt, 2), "updates": rounds}


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=20)
    ap.add_argument("--seed", type=int, default=0)
    a = ap.parse_args()
    print(json.dumps(train(a.seconds, a.seed)))
