"""Soft actor-critic with automatic temperature on a two-link arm swing-up."""
import argparse
import json
import math
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class Acrobat:
    """Two-link arm with torque at the elbow, integrated with RK4 (four substeps per action)."""

    OBS, ACT, LIMIT = 6, 1, 250

    def __init__(self, rng):
        self.rng = rng
        self.out = np.zeros(self.OBS, np.float32)

    def reset(self):
        self.s = tuple(self.rng.uniform(-0.1, 0.1) for _ in range(4))
        self.t = 0
        return self.observe()

    def observe(self):
        a, b, da, db = self.s
        o = self.out
        o[0], o[1], o[2], o[3] = math.cos(a), math.sin(a), math.cos(b), math.sin(b)
        o[4], o[5] = 0.25 * da, 0.25 * db
        return o

    @staticmethod
    def slope(a, b, da, db, u):
        sb, cb = math.sin(b), math.cos(b)
        d1 = 0.25 + 1.25 + cb + 2.0
        d2 = 0.25 + 0.5 * cb + 1.0
        phi2 = 4.9 * math.cos(a + b - 1.5708)
        phi1 = -0.5 * db * db * sb - db * da * sb + 14.7 * math.cos(a - 1.5708) + phi2
        acc2 = (u + d2 / d1 * phi1 - 0.5 * da * da * sb - phi2) / (1.25 - d2 * d2 / d1)
        return da, db, -(d2 * acc2 + phi1) / d1, acc2

    def step(self, u):
        a, b, da, db = self.s
        h = 0.0125
        f = self.slope
        for _ in range(4):
            k1 = f(a, b, da, db, u)
            k2 = f(a + h / 2 * k1[0], b + h / 2 * k1[1], da + h / 2 * k1[2], db + h / 2 * k1[3], u)
            k3 = f(a + h / 2 * k2[0], b + h / 2 * k2[1], da + h / 2 * k2[2], db + h / 2 * k2[3], u)
            k4 = f(a + h * k3[0], b + h * k3[1], da + h * k3[2], db + h * k3[3], u)
            a += h / 6 * (k1[0] + 2 * k2[0] + 2 * k3[0] + k4[0])
            b += h / 6 * (k1[1] + 2 * k2[1] + 2 * k3[1] + k4[1])
            da += h / 6 * (k1[2] + 2 * k2[2] + 2 * k3[2] + k4[2])
            db += h / 6 * (k1[3] + 2 * k2[3] + 2 * k3[3] + k4[3])
        da = max(-12.0, min(12.0, da))
        db = max(-18.0, min(18.0, db))
        self.s = (a, b, da, db)
        self.t += 1
        height = -math.cos(a) - math.cos(a + b)
        return self.observe(), 0.5 * height - 0.001 * u * u, self.t >= self.LIMIT


class ReplayBuffer:
    """One row per transition: obs, action, reward, next obs. (There are no terminal states.)"""

    def __init__(self, n_obs, n_act, capacity):
        self.cuts = (n_obs, n_act, 1, n_obs)
        self.rows = torch.zeros(capacity, sum(self.cuts))
        self.view = self.rows.numpy()
        self.n_obs, self.n_act = n_obs, n_act
        self.capacity, self.pos, self.full = capacity, 0, 0

    def add(self, obs, act, rew, nxt):
        row, k = self.view[self.pos], self.n_obs + self.n_act
        row[:self.n_obs], row[self.n_obs:k], row[k], row[k + 1:] = obs, act, rew, nxt
        self.pos = (self.pos + 1) % self.capacity
        self.full = min(self.full + 1, self.capacity)

    def sample(self, n):
        rows = self.rows.index_select(0, torch.randint(self.full, (n,)))
        return rows.split(self.cuts, 1)


class TwinLinear(nn.Module):
    """The same layer of both critics at once."""

    def __init__(self, i, o):
        super().__init__()
        b = 1 / math.sqrt(i)
        self.weight = nn.Parameter(torch.empty(2, i, o).uniform_(-b, b))
        self.bias = nn.Parameter(torch.empty(2, 1, o).uniform_(-b, b))

    def forward(self, x):
        return torch.baddbmm(self.bias, x, self.weight)


class TwinCritic(nn.Module):
    def __init__(self, n_obs, n_act, width):
        super().__init__()
        self.net = nn.Sequential(TwinLinear(n_obs + n_act, width), nn.ReLU(),
                                 TwinLinear(width, width), nn.ReLU(), TwinLinear(width, 1))

    def forward(self, obs, act):
        x = torch.cat([obs, act], 1)
        return self.net(x.expand(2, -1, -1))


class Actor(nn.Module):
    def __init__(self, n_obs, n_act, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_obs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                 nn.Linear(width, 2 * n_act))

    def forward(self, obs):
        mean, log_std = self.net(obs).chunk(2, 1)
        log_std = log_std.clamp(-5, 2)
        noise = torch.randn_like(mean)
        pre = mean + noise * log_std.exp()
        logp = -0.5 * noise.pow(2) - log_std - 0.919 - 2 * (0.6931 - pre - F.softplus(-2 * pre))
        return torch.tanh(pre), logp.sum(1, keepdim=True)


class SAC:
    def __init__(self, n_obs, n_act, width=128, gamma=0.99, tau=0.005, lr=6e-4):
        self.actor = Actor(n_obs, n_act, width)
        self.critic, self.slow_critic = TwinCritic(n_obs, n_act, width), TwinCritic(n_obs, n_act, width)
        self.slow_critic.load_state_dict(self.critic.state_dict())
        self.fast, self.slow = list(self.critic.parameters()), list(self.slow_critic.parameters())
        self.log_alpha = torch.zeros((), requires_grad=True)
        self.target_entropy = -float(n_act)
        self.critic_opt = torch.optim.Adam(self.fast, lr=lr, fused=True)
        self.actor_opt = torch.optim.Adam([*self.actor.parameters(), self.log_alpha], lr=lr, fused=True)
        self.gamma, self.tau = gamma, tau

    @torch.no_grad()
    def act(self, obs):
        return self.actor(torch.from_numpy(obs).unsqueeze(0))[0].item()

    def update(self, obs, act, rew, nxt):
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            next_act, next_logp = self.actor(nxt)
            next_q = self.slow_critic(nxt, next_act).amin(0) - alpha * next_logp
            target = rew + self.gamma * next_q
        critic_loss = (self.critic(obs, act) - target).pow(2).sum(0).mean()
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()

        self.critic.requires_grad_(False)
        new_act, logp = self.actor(obs)
        gap = (logp.detach() + self.target_entropy).mean()
        actor_loss = (alpha * logp - self.critic(obs, new_act).amin(0)).mean() - self.log_alpha * gap
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()
        self.critic.requires_grad_(True)
        with torch.no_grad():
            torch._foreach_lerp_(self.slow, self.fast, self.tau)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)

    env = Acrobat(rng)
    agent = SAC(env.OBS, env.ACT)
    buffer = ReplayBuffer(env.OBS, env.ACT, 100_000)
    obs = env.reset().copy()
    for _ in range(1000):
        act = rng.uniform(-1, 1)
        nxt, rew, over = env.step(3 * act)
        buffer.add(obs, act, rew, nxt)
        obs[:] = env.reset() if over else nxt

    steps, total = 0, 0.0
    t0 = time.perf_counter()
    while time.perf_counter() - t0 < args.seconds:
        act = agent.act(obs)
        nxt, rew, over = env.step(3 * act)
        buffer.add(obs, act, rew, nxt)
        total += rew
        obs[:] = env.reset() if over else nxt
        agent.update(*buffer.sample(128))
        steps += 1
    dt = time.perf_counter() - t0
    print("mean reward", round(total / steps, 3))
    print(json.dumps({"env_steps": steps, "seconds": round(dt, 3), "env_steps_per_s": round(steps / dt, 2),
                      "updates": steps}))


if __name__ == "__main__":
    main()
