"""Conservative Q-learning (discrete) for CartPole from a fixed, mixed-quality data set.

The data set is rolled out once with plain NumPy physics (many poles at once) and never grows.
"""
import argparse
import json
import math
import os
import shutil
import tempfile
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.tensorboard import SummaryWriter

γ, τ, κ = 0.99, 0.01, 0.5


def physics(s, a):
    x, v, θ, ω = s.T
    f = np.where(a == 1, 10.0, -10.0)
    c, n = np.cos(θ), np.sin(θ)
    tmp = (f + 0.05 * ω ** 2 * n) / 1.1
    α = (9.8 * n - c * tmp) / (0.5 * (4.0 / 3.0 - 0.1 * c ** 2 / 1.1))
    acc = tmp - 0.05 * α * c / 1.1
    return np.stack([x + 0.02 * v, v + 0.02 * acc, θ + 0.02 * ω, ω + 0.02 * α], 1)


def collect(n_poles, n_rounds, rng):
    """Half of the poles are balanced by a fair hand, the rest by a clumsy one."""
    s = rng.uniform(-0.05, 0.05, (n_poles, 4))
    age = np.zeros(n_poles)
    clumsy = np.where(np.arange(n_poles) % 2 == 0, 0.15, 0.6)
    out = {k: [] for k in ("s", "a", "r", "z", "d")}
    for _ in range(n_rounds):
        good = (0.1 * s[:, 0] + 0.3 * s[:, 1] + 3.0 * s[:, 2] + s[:, 3] > 0).astype(np.int64)
        a = np.where(rng.random(n_poles) < clumsy, rng.integers(0, 2, n_poles), good)
        z = physics(s, a)
        d = (np.abs(z[:, 0]) > 2.4) | (np.abs(z[:, 2]) > 12 * math.pi / 180)
        for k, q in zip("sarzd", (s, a, np.ones(n_poles), z, d)):
            out[k].append(q)
        age += 1
        again = d | (age >= 300)
        z[again] = rng.uniform(-0.05, 0.05, (again.sum(), 4))
        age[again] = 0
        s = z
    data = {k: np.concatenate(v) for k, v in out.items()}
    μ, σ = data["s"].mean(0), data["s"].std(0) + 1e-6
    pack = {"s": torch.tensor((data["s"] - μ) / σ, dtype=torch.float32), "a": torch.tensor(data["a"]),
            "r": torch.tensor(data["r"], dtype=torch.float32),
            "z": torch.tensor((data["z"] - μ) / σ, dtype=torch.float32),
            "d": torch.tensor(data["d"], dtype=torch.float32)}
    return pack, μ, σ


def make_q(h=160):
    return nn.Sequential(nn.Linear(4, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, 2))


class Exam:
    def __init__(self, μ, σ, seed):
        self.env = gym.make("CartPole-v1", max_episode_steps=250)
        self.μ, self.σ, self.seed, self.calls = μ, σ, seed, 0

    def sit(self, q, n=2):
        lengths = []
        for _ in range(n):
            self.seed += 1
            s, _ = self.env.reset(seed=self.seed)
            k, over = 0, False
            while not over:
                with torch.no_grad():
                    x = torch.as_tensor((s - self.μ) / self.σ, dtype=torch.float32)
                    a = q(x).argmax().item()
                s, _, fell, late, _ = self.env.step(a)
                self.calls += 1
                k += 1
                over = fell or late
            lengths.append(k)
        return float(np.mean(lengths))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--exam-every", type=int, default=250)
    η = p.parse_args()
    torch.manual_seed(η.seed)
    torch.set_num_threads(1)
    data, μ, σ = collect(200, 300, np.random.default_rng(η.seed))
    exam = Exam(μ, σ, 1000 * η.seed)
    θ, θ_slow = make_q(), make_q()
    θ_slow.load_state_dict(θ.state_dict())
    optim = torch.optim.AdamW(θ.parameters(), lr=5e-4, weight_decay=1e-5)
    sched = torch.optim.lr_scheduler.ExponentialLR(optim, 0.9999)
    where = tempfile.mkdtemp()
    board = SummaryWriter(where)
    for _ in range(3):
        θ(data["s"][:η.batch]).sum().backward()
    optim.zero_grad()
    N = len(data["r"])

    ns = time.perf_counter_ns
    w = np.zeros(9, np.int64)
    n, best, since, ema = 0, -1.0, 0, None
    t_start = t0 = ns()
    t_stop = t_start + int(1e9 * η.seconds)
    while t0 < t_stop:
        i = torch.randint(N, (η.batch,))
        s, a, r, z, d = (data[k][i] for k in "sarzd")
        t1 = ns(); w[0] += t1 - t0

        q = θ(s)
        q_a = q.gather(1, a.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            a_next = θ(z).argmax(1, keepdim=True)
            y = r + γ * (1 - d) * θ_slow(z).gather(1, a_next).squeeze(1)
        td = F.smooth_l1_loss(q_a, y)
        cql = (torch.logsumexp(q, 1) - q_a).mean()
        ℓ = td + κ * cql
        t0 = ns(); w[1] += t0 - t1

        optim.zero_grad()
        t1 = ns(); w[3] += t1 - t0
        ℓ.backward()
        t0 = ns(); w[2] += t0 - t1
        nn.utils.clip_grad_norm_(θ.parameters(), 10.0)
        optim.step()
        sched.step()
        t1 = ns(); w[3] += t1 - t0

        with torch.no_grad():
            for slow, fast in zip(θ_slow.parameters(), θ.parameters()):
                slow += τ * (fast - slow)
        t0 = ns(); w[4] += t0 - t1

        n += 1
        ema = ℓ.item() if ema is None else 0.99 * ema + 0.01 * ℓ.item()
        t1 = ns(); w[8] += t1 - t0
        t0 = t1
        if n % 5 == 0:
            board.add_scalar("loss/td", td.item(), n)
            board.add_scalar("loss/cql", cql.item(), n)
            board.add_scalar("loss/smooth", ema, n)
            board.add_scalar("q/mean", q_a.mean().item(), n)
            board.add_scalar("lr", sched.get_last_lr()[0], n)
            t0 = ns(); w[6] += t0 - t1
        if n % η.exam_every == 0:
            t1 = ns(); w[8] += t1 - t0
            mark = exam.sit(θ)
            t0 = ns(); w[5] += t0 - t1
            board.add_scalar("exam", mark, n)
            t1 = ns(); w[6] += t1 - t0
            since = 0 if mark > best else since + 1
            best = max(best, mark)
            t0 = ns(); w[8] += t0 - t1
        if n % 60 == 0:
            t1 = ns(); w[8] += t1 - t0
            torch.save({"theta": θ.state_dict(), "slow": θ_slow.state_dict(), "optim": optim.state_dict(), "n": n},
                       os.path.join(where, f"cql_{n // 60 % 3}.pt"))
            t0 = ns(); w[7] += t0 - t1
    t1 = ns(); w[8] += t1 - t0
    board.close()
    shutil.rmtree(where)
    names = ["sample", "forward", "backward", "optimiser", "target", "evaluate", "log", "save", "own"]
    print(json.dumps({"env_steps": 0, "updates": n, "episodes": 0, "seconds": (t1 - t_start) / 1e9,
                      "phases": {k: int(x) / 1e9 for k, x in zip(names, w)}, "calls_of_step": exam.calls}))


main()
