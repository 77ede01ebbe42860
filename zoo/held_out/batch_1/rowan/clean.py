# PPO, many drones in one numpy simulation
import argparse
import json
import time

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)


class Drones:
    """n planar drones (x, z, tilt and their rates), two rotors each, flying to a way point in gusty wind."""

    obs_dim, act_dim = 9, 2

    def __init__(self, n, rng, limit=250, sub=4, h=0.0125):
        self.n, self.rng, self.limit, self.sub, self.h = n, rng, limit, sub, h
        self.pos, self.vel = np.zeros((3, n), np.float32), np.zeros((3, n), np.float32)
        self.goal, self.wind = np.zeros((2, n), np.float32), np.zeros(n, np.float32)
        self.age = rng.integers(0, limit, n)
        self._spawn(np.ones(n, bool))

    def _spawn(self, who):
        k = int(who.sum())
        self.pos[:, who] = self.rng.uniform(-0.2, 0.2, (3, k))
        self.vel[:, who] = 0
        self.goal[:, who] = self.rng.uniform(-1, 1, (2, k))

    def observe(self, out):
        out[:, 0:2] = (self.goal - self.pos[:2]).T
        np.sin(self.pos[2], out=out[:, 2])
        np.cos(self.pos[2], out=out[:, 3])
        out[:, 4:7] = self.vel.T
        out[:, 7:9] = self.pos[:2].T

    def step(self, act):
        left, right = np.clip(act.T, -1, 1)
        lift, turn = 9.81 + 4 * (left + right), 12 * (right - left)
        self.wind += -0.05 * self.wind + 0.1 * self.rng.standard_normal(self.n, np.float32)
        for _ in range(self.sub):
            tilt = self.pos[2]
            self.vel[0] += self.h * (-lift * np.sin(tilt) + self.wind - 0.1 * self.vel[0])
            self.vel[1] += self.h * (lift * np.cos(tilt) - 9.81 - 0.1 * self.vel[1])
            self.vel[2] += self.h * (turn - 0.5 * self.vel[2])
            self.pos += self.h * self.vel
        self.age += 1
        off = np.hypot(*(self.goal - self.pos[:2]))
        crash = (off > 3) | (np.abs(self.pos[2]) > 1.6)
        reward = 1 - off - 5 * crash - 0.02 * (left ** 2 + right ** 2)
        over = crash | (self.age >= self.limit)
        if over.any():
            self._spawn(over)
            self.age[over] = 0
        return reward, over


def layer(i, o, gain=1.0):
    lin = nn.Linear(i, o)
    nn.init.orthogonal_(lin.weight, gain)
    nn.init.zeros_(lin.bias)
    return lin


class Net(nn.Module):
    def __init__(self, i, o, width=64):
        super().__init__()
        self.mu = nn.Sequential(layer(i, width, 1.4), nn.Tanh(), layer(width, width, 1.4), nn.Tanh(), layer(width, o, 0.01))
        self.v = nn.Sequential(layer(i, width, 1.4), nn.Tanh(), layer(width, width, 1.4), nn.Tanh(), layer(width, 1))
        self.ls = nn.Parameter(torch.full((o,), -0.5))


def gaussian_logp(x, mu, ls):
    return -(0.5 * ((x - mu) * torch.exp(-ls)).pow(2) + ls + 0.9189).sum(-1)


def ppo(secs, seed, N=128, T=64, epochs=5, mb=512, gamma=0.99, lam=0.95, clip=0.2):
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    sim, net = Drones(N, rng), Net(Drones.obs_dim, Drones.act_dim)
    params = list(net.parameters())
    opt = torch.optim.Adam(params, lr=5e-4, eps=1e-5, fused=True)
    obs, act = torch.zeros(T + 1, N, sim.obs_dim), torch.zeros(T, N, sim.act_dim)
    lp, rew, live = torch.zeros(T, N), torch.zeros(T, N), torch.zeros(T, N)
    adv = torch.zeros(T, N)
    obs_np, act_np, rew_np, live_np = obs.numpy(), act.numpy(), rew.numpy(), live.numpy()
    sim.observe(obs_np[0])

    iters, t0 = 0, None
    while True:
        if iters == 1:
            t0 = time.perf_counter()
        if t0 is not None and time.perf_counter() - t0 > secs:
            break
        with torch.no_grad():
            sd = net.ls.exp()
            noise = torch.randn(T, N, sim.act_dim)
            for t in range(T):
                torch.addcmul(net.mu(obs[t]), noise[t], sd, out=act[t])
                rew_np[t], over = sim.step(act_np[t])
                live_np[t] = ~over
                sim.observe(obs_np[t + 1])
            lp.copy_(-(0.5 * noise.pow(2) + net.ls + 0.9189).sum(-1))
            val = net.v(obs).squeeze(-1)
            delta = rew + gamma * live * val[1:] - val[:-1]
            keep = gamma * lam * live
            acc = torch.zeros(N)
            for t in range(T - 1, -1, -1):
                acc = torch.addcmul(delta[t], keep[t], acc)
                adv[t] = acc
            ret = adv + val[:-1]
        data = torch.cat([obs[:T].reshape(T * N, -1), act.view(T * N, -1), lp.view(-1, 1),
                          adv.view(-1, 1), ret.view(-1, 1)], 1)
        widths = (sim.obs_dim, sim.act_dim, 1, 1, 1)
        for _ in range(epochs):
            for rows in data[torch.randperm(T * N)].split(mb):
                o, a, old, ad, rt = rows.split(widths, 1)
                ad = ((ad - ad.mean()) / (ad.std() + 1e-8)).squeeze(1)
                ratio = (gaussian_logp(a, net.mu(o), net.ls) - old.squeeze(1)).exp()
                pg = -torch.min(ratio * ad, ratio.clamp(1 - clip, 1 + clip) * ad).mean()
                loss = pg + 0.5 * (net.v(o) - rt).pow(2).mean() - 0.001 * net.ls.sum()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(params, 0.5)
                opt.step()
        obs[0] = obs[T]
        iters += 1
    dt = time.perf_counter() - t0
    n = (iters - 1) * T * N
    print("mean reward of the last rollout: %.3f" % rew.mean())
    print(json.dumps({"env_steps": n, "seconds": round(dt, 3), "env_steps_per_s": round(n / dt, 2),
                      "updates": iters * epochs * (T * N // mb)}))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=30)
    ap.add_argument("--seed", type=int, default=0)
    ns = ap.parse_args()
    ppo(ns.seconds, ns.seed)
