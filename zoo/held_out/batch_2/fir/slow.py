"""Actor-critic with V-trace targets, many small "boats" simulated side by side (after IMPALA)."""
import argparse
import json
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Boats:
    """N boats on a current; rudder left / none / right; goal: stay near the moving buoy."""

    def __init__(self, N, rng):
        self.N, self.rng = N, rng
        self.x = np.zeros((N, 2)); self.θ = np.zeros(N); self.b = np.zeros((N, 2)); self.t = np.zeros(N, np.int64)
        self.restart(np.ones(N, bool))

    def restart(self, m):
        k = int(m.sum())
        if k:
            self.x[m] = self.rng.uniform(-1, 1, (k, 2))
            self.b[m] = self.rng.uniform(-1, 1, (k, 2))
            self.θ[m] = self.rng.uniform(-np.pi, np.pi, k)
            self.t[m] = 0

    def look(self):
        d = self.b - self.x
        return np.stack([np.cos(self.θ), np.sin(self.θ), d[:, 0], d[:, 1], self.x[:, 0], self.x[:, 1]], 1).astype(np.float32)

    def step(self, a):
        self.θ += 0.3 * (a - 1)
        self.x[:, 0] += 0.06 * np.cos(self.θ) + 0.01
        self.x[:, 1] += 0.06 * np.sin(self.θ)
        self.b += 0.01 * self.rng.standard_normal((self.N, 2))
        self.t += 1
        dist = np.hypot(self.b[:, 0] - self.x[:, 0], self.b[:, 1] - self.x[:, 1])
        r = (0.5 - dist).astype(np.float32)
        done = (self.t >= 80) | (dist > 4)
        self.restart(done)
        return self.look(), r, done


class π_and_V(nn.Module):
    def __init__(self, d_o, d_a, h=256):
        super().__init__()
        self.φ = nn.Sequential(nn.Linear(d_o, h), nn.Tanh(), nn.Linear(h, h), nn.Tanh())
        self.π = nn.Linear(h, d_a)
        self.V = nn.Linear(h, 1)

    def forward(self, o):
        z = self.φ(o)
        return self.π(z), self.V(z).squeeze(-1)


def vtrace(log_ρ, r, nonterm, V, V_boot, γ, ρ_bar=1.0, c_bar=1.0):
    """All of shape [T, N] (V_boot: [N]). Returns v_s and the policy-gradient advantage."""
    T, N = r.shape
    ρ = log_ρ.exp()
    vs = torch.zeros(T, N)
    adv = torch.zeros(T, N)
    for n in range(N):
        acc = 0.0
        V_next = V_boot[n]
        v_next = V_boot[n]
        for t in reversed(range(T)):
            ρ_t = torch.clamp(ρ[t, n], max=ρ_bar)
            c_t = torch.clamp(ρ[t, n], max=c_bar)
            δ = ρ_t * (r[t, n] + γ * nonterm[t, n] * V_next - V[t, n])
            acc = δ + γ * nonterm[t, n] * c_t * acc
            vs[t, n] = V[t, n] + acc
            adv[t, n] = ρ_t * (r[t, n] + γ * nonterm[t, n] * v_next - V[t, n])
            V_next = V[t, n]
            v_next = vs[t, n]
    return vs, adv


def learn(net, opt, traj, boot, γ, passes):
    o, a, logμ, r, nt = traj
    T, N = r.shape
    for _ in range(passes):
        logits, V = net(torch.cat([o, boot[None]]).view((T + 1) * N, -1))
        logits, V = logits.view(T + 1, N, -1)[:T], V.view(T + 1, N)
        logp_all = F.log_softmax(logits, -1)
        logπ = logp_all.gather(-1, a[..., None]).squeeze(-1)
        with torch.no_grad():
            vs, adv = vtrace(logπ - logμ, r, nt, V[:T], V[T], γ)
        H = -(logp_all.exp() * logp_all).sum(-1).mean()
        loss = -(logπ * adv).mean() + 0.5 * F.mse_loss(V[:T], vs) - 0.01 * H
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=20)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--boats", type=int, default=8)
    ap.add_argument("--unroll", type=int, default=20)
    ap.add_argument("--passes", type=int, default=1)
    cfg = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    N, T, γ = cfg.boats, cfg.unroll, 0.97
    sea = Boats(N, rng)
    net = π_and_V(6, 3)
    opt = torch.optim.Adam(net.parameters(), lr=7e-4, fused=True)
    o_buf = torch.zeros(T, N, 6)
    a_buf = torch.zeros(T, N, dtype=torch.long)
    μ_buf, r_buf, nt_buf = torch.zeros(T, N), torch.zeros(T, N), torch.zeros(T, N)

    o = sea.look()
    frames = frames0 = iters = 0
    t_0 = time.perf_counter()
    t_1 = t_0
    while time.perf_counter() - t_0 < cfg.seconds:
        for t in range(T):
            with torch.no_grad():
                x = torch.from_numpy(o)
                logp = F.log_softmax(net(x)[0], -1)
                a = torch.multinomial(logp.exp(), 1)
            o_buf[t] = x
            a_buf[t] = a.squeeze(1)
            μ_buf[t] = logp.gather(1, a).squeeze(1)
            o, r, done = sea.step(a_buf[t].numpy())
            r_buf[t] = torch.from_numpy(r)
            nt_buf[t] = torch.from_numpy(1.0 - done.astype(np.float32))
            frames += N
        learn(net, opt, (o_buf, a_buf, μ_buf, r_buf, nt_buf), torch.from_numpy(o), γ, cfg.passes)
        iters += 1
        if iters == 5:
            t_1, frames0 = time.perf_counter(), frames
        if iters % 200 == 0:
            print(f"iter {iters} mean reward {r_buf.mean().item():+.3f}")
    Δ = time.perf_counter() - t_1
    print(json.dumps({"env_steps": frames - frames0, "seconds": Δ, "env_steps_per_s": (frames - frames0) / Δ, "updates": iters}))


if __name__ == "__main__":
    main()
