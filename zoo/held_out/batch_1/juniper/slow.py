#!/usr/bin/env python
# Twin delayed DDPG on Pendulum.
import argparse
import copy
import json
import time

import gymnasium
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


class Actor(nn.Module):
    def __init__(self, ns, na, limit):
        super().__init__()
        self.l1 = nn.Linear(ns, 400)
        self.l2 = nn.Linear(400, 300)
        self.l3 = nn.Linear(300, na)
        self.limit = limit

    def forward(self, s):
        h = F.relu(self.l1(s))
        h = F.relu(self.l2(h))
        return self.limit * torch.tanh(self.l3(h))


class Critic(nn.Module):
    def __init__(self, ns, na):
        super().__init__()
        self.l1 = nn.Linear(ns + na, 400)
        self.l2 = nn.Linear(400, 300)
        self.l3 = nn.Linear(300, 1)

    def forward(self, s, a):
        h = F.relu(self.l1(torch.cat([s, a], 1)))
        h = F.relu(self.l2(h))
        return self.l3(h)


class Storage:
    def __init__(self, ns, na, room):
        self.s, self.s_ = torch.zeros(room, ns), torch.zeros(room, ns)
        self.a, self.r, self.nd = torch.zeros(room, na), torch.zeros(room, 1), torch.zeros(room, 1)
        self.room, self.at, self.held = room, 0, 0

    def add(self, s, a, r, s_, term):
        k = self.at
        self.s[k] = torch.from_numpy(s)
        self.a[k] = torch.from_numpy(a)
        self.s_[k] = torch.from_numpy(s_)
        self.r[k, 0] = r
        self.nd[k, 0] = 1.0 - term
        self.at = (k + 1) % self.room
        self.held = min(self.held + 1, self.room)

    def batch(self, n):
        i = torch.randint(self.held, (n,))
        return self.s[i], self.a[i], self.r[i], self.s_[i], self.nd[i]


class TD3:
    def __init__(self, ns, na, limit, lr=1e-3, gamma=0.99, tau=0.005, smooth=0.2, clip=0.5, delay=2):
        self.actor = Actor(ns, na, limit)
        self.q1, self.q2 = Critic(ns, na), Critic(ns, na)
        self.actor_, self.q1_, self.q2_ = map(copy.deepcopy, (self.actor, self.q1, self.q2))
        self.opt_a = torch.optim.Adam(self.actor.parameters(), lr=lr)
        self.opt_q = torch.optim.Adam([*self.q1.parameters(), *self.q2.parameters()], lr=lr)
        self.limit, self.gamma, self.tau, self.smooth, self.clip, self.delay = limit, gamma, tau, smooth, clip, delay
        self.it = 0

    @torch.no_grad()
    def choose(self, s, sigma):
        a = self.actor(torch.as_tensor(s, dtype=torch.get_default_dtype()).unsqueeze(0))[0]
        a = a + sigma * self.limit * torch.randn_like(a)
        return a.clamp(-self.limit, self.limit).numpy()

    def train(self, store, n):
        self.it += 1
        s, a, r, s_, nd = store.batch(n)
        with torch.no_grad():
            eps = (self.smooth * torch.randn_like(a)).clamp(-self.clip, self.clip) * self.limit
            a_ = (self.actor_(s_) + eps).clamp(-self.limit, self.limit)
            y = r + self.gamma * nd * torch.min(self.q1_(s_, a_), self.q2_(s_, a_))
        loss_q = F.mse_loss(self.q1(s, a), y) + F.mse_loss(self.q2(s, a), y)
        self.opt_q.zero_grad()
        loss_q.backward()
        self.opt_q.step()
        if self.it % self.delay:
            return
        self.q1.requires_grad_(False)
        loss_a = -self.q1(s, self.actor(s)).mean()
        self.opt_a.zero_grad()
        loss_a.backward()
        self.opt_a.step()
        self.q1.requires_grad_(True)
        with torch.no_grad():
            for net, net_ in ((self.actor, self.actor_), (self.q1, self.q1_), (self.q2, self.q2_)):
                torch._foreach_lerp_(list(net_.parameters()), list(net.parameters()), self.tau)


def run(args):
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    env = gymnasium.make("Pendulum-v1")
    ns, na = env.observation_space.shape[0], env.action_space.shape[0]
    agent = TD3(ns, na, float(env.action_space.high[0]))
    store = Storage(ns, na, 100_000)

    env.action_space.seed(args.seed)
    s, _ = env.reset(seed=args.seed)
    for _ in range(args.start):
        a = env.action_space.sample()
        s_, r, term, trunc, _ = env.step(a)
        store.add(s, a, r, s_, term)
        s = env.reset()[0] if term or trunc else s_

    ret, rets, n = 0.0, [], 0
    t0 = time.perf_counter()
    while time.perf_counter() - t0 < args.seconds:
        a = agent.choose(s, 0.1)
        s_, r, term, trunc, _ = env.step(a)
        store.add(s, a, r, s_, term)
        ret += r
        s = s_
        if term or trunc:
            rets.append(ret)
            ret = 0.0
            s, _ = env.reset()
        agent.train(store, args.batch)
        n += 1
    dt = time.perf_counter() - t0
    print("last returns:", [round(x) for x in rets[-5:]])
    print(json.dumps({"env_steps": n, "seconds": round(dt, 3), "env_steps_per_s": round(n / dt, 2), "updates": agent.it}))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--start", type=int, default=600)
    p.add_argument("--batch", type=int, default=256)
    run(p.parse_args())
