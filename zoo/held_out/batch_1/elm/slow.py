# GAIL with a clipped policy gradient learner; expert = hand tuned cart-pole controller
import argparse
import json
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class VecCartPole:
    """n cart-poles stepped at once, reset on their own."""

    def __init__(self, n, rng, limit=200):
        self.n, self.rng, self.limit = n, rng, limit
        self.s = np.zeros((n, 4))
        self.t = np.zeros(n, int)

    def reset(self):
        self.s = self.rng.uniform(-0.05, 0.05, (self.n, 4))
        self.t[:] = 0
        return self.s.astype(np.float32)

    def step(self, a):
        x, xd, th, thd = self.s.T
        f = np.where(a == 1, 10.0, -10.0)
        c, s = np.cos(th), np.sin(th)
        tmp = (f + 0.05 * thd ** 2 * s) / 1.1
        tha = (9.8 * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c ** 2 / 1.1))
        xa = tmp - 0.05 * tha * c / 1.1
        self.s = np.stack([x + 0.02 * xd, xd + 0.02 * xa, th + 0.02 * thd, thd + 0.02 * tha], 1)
        self.t += 1
        done = (np.abs(self.s[:, 0]) > 2.4) | (np.abs(self.s[:, 2]) > 0.21) | (self.t >= self.limit)
        k = int(done.sum())
        if k:
            self.s[done] = self.rng.uniform(-0.05, 0.05, (k, 4))
            self.t[done] = 0
        return self.s.astype(np.float32), done


class ExpertData(Dataset):
    def __init__(self, obs, act):
        self.obs, self.act = torch.from_numpy(obs), torch.from_numpy(act)

    def __len__(self):
        return len(self.act)

    def __getitem__(self, i):
        return self.obs[i], self.act[i]

    def __getitems__(self, ii):
        return self.obs[ii], self.act[ii]


def record_expert(rng, n_envs=256, n_steps=400):
    env = VecCartPole(n_envs, rng, limit=500)
    o, O, A = env.reset(), [], []
    for _ in range(n_steps):
        u = 0.3 * o[:, 0] + 0.5 * o[:, 1] + 8.0 * o[:, 2] + 1.5 * o[:, 3]
        a = (u + 0.1 * rng.standard_normal(n_envs) > 0).astype(np.int64)
        O.append(o)
        A.append(a)
        o, _ = env.step(a)
    return ExpertData(np.concatenate(O), np.concatenate(A))


def identity(batch):
    return batch


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, obs, act):
        return self.net(torch.cat([obs, F.one_hot(act, 2).float()], 1)).squeeze(1)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
        self.vf = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))


class Trainer:
    n_envs, n_steps, d_batch, d_steps = 32, 64, 128, 16

    def __init__(self, seed):
        torch.manual_seed(seed)
        rng = np.random.default_rng(seed)
        self.env = VecCartPole(self.n_envs, rng)
        self.expert = DataLoader(record_expert(rng), batch_size=self.d_batch, shuffle=True, drop_last=True,
                                 collate_fn=identity)
        self.ac, self.disc = Policy(), Discriminator()
        self.opt = torch.optim.Adam(self.ac.parameters(), lr=7e-4)
        self.d_opt = torch.optim.Adam(self.disc.parameters(), lr=3e-4)
        self.o = self.env.reset()
        self.updates = 0

    @torch.no_grad()
    def collect(self):
        T, N = self.n_steps, self.n_envs
        obs, act = torch.zeros(T, N, 4), torch.zeros(T, N, dtype=torch.int64)
        lps, done = torch.zeros(T, N), np.zeros((T, N), np.float32)
        for t in range(T):
            obs[t] = torch.from_numpy(self.o)
            lp = F.log_softmax(self.ac.pi(obs[t]), 1)
            act[t] = torch.multinomial(lp.exp(), 1).squeeze(1)
            lps[t] = lp.gather(1, act[t, :, None]).squeeze(1)
            self.o, done[t] = self.env.step(act[t].numpy())
        return obs, act, lps, done

    def train_discriminator(self, obs, act):
        obs, act = obs.view(-1, 4), act.view(-1)
        for _ in range(self.d_steps):
            e_obs, e_act = next(iter(self.expert))
            i = torch.randint(len(act), (self.d_batch,))
            logits = self.disc(torch.cat([e_obs, obs[i]]), torch.cat([e_act, act[i]]))
            label = torch.cat([torch.ones(self.d_batch), torch.zeros(self.d_batch)])
            loss = F.binary_cross_entropy_with_logits(logits, label)
            self.d_opt.zero_grad()
            loss.backward()
            self.d_opt.step()

    @torch.no_grad()
    def returns(self, obs, act, done, gamma=0.99, lam=0.95):
        T, N = act.shape
        r = F.softplus(self.disc(obs.view(-1, 4), act.view(-1))).view(T, N).numpy()
        v = self.ac.vf(torch.cat([obs, torch.from_numpy(self.o)[None]])).squeeze(2).numpy()
        adv, acc = np.zeros((T, N), np.float32), np.zeros(N, np.float32)
        for t in reversed(range(T)):
            m = 1 - done[t]
            acc = r[t] + gamma * m * v[t + 1] - v[t] + gamma * lam * m * acc
            adv[t] = acc
        return torch.from_numpy(adv).view(-1), torch.from_numpy(adv + v[:-1]).view(-1)

    def train_policy(self, obs, act, lps, adv, ret):
        obs, act, lps = obs.view(-1, 4), act.view(-1), lps.view(-1)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        for _ in range(4):
            for i in torch.randperm(len(act)).split(512):
                logp = F.log_softmax(self.ac.pi(obs[i]), 1)
                ratio = (logp.gather(1, act[i, None]).squeeze(1) - lps[i]).exp()
                a = adv[i]
                pg = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
                ent = -(logp.exp() * logp).sum(1).mean()
                loss = pg + 0.5 * F.mse_loss(self.ac.vf(obs[i]).squeeze(1), ret[i]) - 0.005 * ent
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.updates += 1

    def iterate(self):
        obs, act, lps, done = self.collect()
        self.train_discriminator(obs, act)
        adv, ret = self.returns(obs, act, done)
        self.train_policy(obs, act, lps, adv, ret)
        return self.n_envs * self.n_steps


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--seconds", type=float, default=30)
    cli.add_argument("--seed", type=int, default=0)
    a = cli.parse_args()
    tr = Trainer(a.seed)
    tr.iterate()
    n, t0 = 0, time.perf_counter()
    while time.perf_counter() - t0 < a.seconds:
        n += tr.iterate()
    dt = time.perf_counter() - t0
    print(json.dumps({"env_steps": n, "seconds": round(dt, 3), "env_steps_per_s": round(n / dt, 2),
                      "updates": tr.updates}))
