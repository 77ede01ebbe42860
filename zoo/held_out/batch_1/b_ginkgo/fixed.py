import argparse
import copy
import json
import os
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIG = {
    "env": "Pendulum-v1",
    "hidden": 128,
    "batch": 128,
    "gamma": 0.98,
    "rho": 0.99,
    "alpha": 0.2,
    "lr": 1e-3,
    "memory": 60_000,
    "explore": 256,
    "threads": 1,
    "device": "cuda" if torch.cuda.is_available() else "cpu",
}


def setup(cfg, seed):
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(cfg["threads"])
    torch.manual_seed(seed)
    np.random.seed(seed)


def mlp(n_in, n_hidden, n_out):
    return nn.Sequential(
        nn.Linear(n_in, n_hidden), nn.ReLU(), nn.Linear(n_hidden, n_hidden), nn.ReLU(), nn.Linear(n_hidden, n_out)
    )


class Policy(nn.Module):
    def __init__(self, n_obs, n_act, n_hidden, limit):
        super().__init__()
        self.trunk = mlp(n_obs, n_hidden, 2 * n_act)
        self.limit = limit

    def forward(self, s):
        mu, log_std = self.trunk(s).chunk(2, -1)
        log_std = log_std.clamp(-5, 2)
        u = mu + log_std.exp() * torch.randn_like(mu)
        logp = (-0.5 * ((u - mu) / log_std.exp()).pow(2) - log_std - 0.919).sum(-1)
        logp = logp - (2 * (0.6931 - u - F.softplus(-2 * u))).sum(-1)
        return self.limit * torch.tanh(u), logp


class TwinQ(nn.Module):
    def __init__(self, n_obs, n_act, n_hidden):
        super().__init__()
        self.q1 = mlp(n_obs + n_act, n_hidden, 1)
        self.q2 = mlp(n_obs + n_act, n_hidden, 1)

    def forward(self, s, a):
        x = torch.cat([s, a], -1)
        return self.q1(x).squeeze(-1), self.q2(x).squeeze(-1)


class Memory:
    def __init__(self, size, n_obs, n_act):
        self.data = torch.zeros(size, 2 * n_obs + n_act + 2)
        self.cut = (n_obs, n_act, 1, n_obs, 1)
        self.size, self.n = size, 0

    def push(self, s, a, r, s2, d):
        self.data[self.n % self.size] = torch.from_numpy(np.concatenate([s, a, [r], s2, [d]]).astype(np.float32))
        self.n += 1

    def draw(self, k):
        return self.data[torch.randint(min(self.n, self.size), (k,))].split(self.cut, -1)


class SoftActorCritic:
    def __init__(self, cfg, n_obs, n_act, limit):
        self.cfg = cfg
        self.policy = Policy(n_obs, n_act, cfg["hidden"], limit).to(cfg["device"])
        self.critic = TwinQ(n_obs, n_act, cfg["hidden"]).to(cfg["device"])
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.pi_opt = torch.optim.Adam(self.policy.parameters(), lr=cfg["lr"])
        self.q_opt = torch.optim.Adam(self.critic.parameters(), lr=cfg["lr"])
        self.pairs = list(zip(self.target.parameters(), self.critic.parameters()))

    @torch.no_grad()
    def act(self, s):
        a, _ = self.policy(torch.as_tensor(s, device=self.cfg["device"]))
        return a.cpu().numpy()

    def update(self, memory):
        c = self.cfg
        s, a, r, s2, d = (x.to(c["device"]) for x in memory.draw(c["batch"]))
        with torch.no_grad():
            a2, logp2 = self.policy(s2)
            t1, t2 = self.target(s2, a2)
            y = r.squeeze(-1) + c["gamma"] * (1 - d.squeeze(-1)) * (torch.min(t1, t2) - c["alpha"] * logp2)
        q1, q2 = self.critic(s, a)
        q_loss = F.mse_loss(q1, y) + F.mse_loss(q2, y)
        self.q_opt.zero_grad()
        q_loss.backward()
        self.q_opt.step()

        self.critic.requires_grad_(False)
        new_a, logp = self.policy(s)
        pi_loss = (c["alpha"] * logp - torch.min(*self.critic(s, new_a))).mean()
        self.pi_opt.zero_grad()
        pi_loss.backward()
        self.pi_opt.step()
        self.critic.requires_grad_(True)

        with torch.no_grad():
            for p_t, p in self.pairs:
                p_t.lerp_(p, 1 - c["rho"])


def run(cfg, seed, seconds):
    setup(cfg, seed)
    env = gym.make(cfg["env"])
    n_obs, n_act = env.observation_space.shape[0], env.action_space.shape[0]
    limit = float(env.action_space.high[0])
    agent = SoftActorCritic(cfg, n_obs, n_act, limit)
    memory = Memory(cfg["memory"], n_obs, n_act)
    env.action_space.seed(seed)
    s, _ = env.reset(seed=seed)
    step = episode = 0
    ret, history = 0.0, []
    mark = None
    zero = time.perf_counter()
    while True:
        a = env.action_space.sample() if step < cfg["explore"] else agent.act(s)
        s2, r, term, trunc, _ = env.step(a)
        memory.push(s, a, r / 8.0, s2, float(term))
        ret += r
        s = s2
        step += 1
        if step >= cfg["explore"] and step % 2 == 0:
            agent.update(memory)
        if term or trunc:
            episode += 1
            history.append(ret)
            print(f"episode {episode} return {ret:.0f}")
            ret = 0.0
            s, _ = env.reset()
        now = time.perf_counter()
        if mark is None and now - zero > 1.2:
            mark = (now, step)
        if now - zero > seconds:
            break
    return step - mark[1], now - mark[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=0)
    opt = parser.parse_args()
    n, sec = run(CONFIG, opt.seed, opt.seconds)
    print(json.dumps({"env_steps": n, "seconds": round(sec, 3), "env_steps_per_s": round(n / sec, 1)}))
