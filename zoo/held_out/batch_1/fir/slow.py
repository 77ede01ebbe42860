"""Decision-transformer style sequence model, trained offline on logged trajectories."""
import argparse
import json
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


def discount_cumsum(x, gamma):
    out = np.zeros_like(x)
    out[-1] = x[-1]
    for t in reversed(range(x.shape[0] - 1)):
        out[t] = x[t] + gamma * out[t + 1]
    return out


def log_trajectories(n_traj, length, seed):
    """Mixed-quality controllers on a damped double integrator, all trajectories at once."""
    rng = np.random.default_rng(seed)
    pos, vel = rng.uniform(-1, 1, n_traj), np.zeros(n_traj)
    skill = rng.uniform(0.0, 1.0, n_traj)
    stop = rng.integers(length * 4 // 5, length + 1, n_traj)
    goal = rng.uniform(-1, 1, n_traj)
    S, A, R = [], [], []
    for t in range(length):
        S.append(np.stack([pos, vel, goal, np.sin(0.05 * t) * np.ones(n_traj)], 1))
        u = np.clip(skill * (2.0 * (goal - pos) - 1.5 * vel) + 0.4 * rng.standard_normal(n_traj), -1, 1)
        vel = 0.95 * vel + 0.1 * u + 0.02 * np.sin(0.05 * t)
        pos = pos + 0.1 * vel
        A.append(u[:, None])
        R.append(-np.abs(goal - pos) - 0.05 * u * u)
    S, A, R = (np.stack(x, 1).astype(np.float32) for x in (S, A, R))
    return [{"observations": S[i, :stop[i]], "actions": A[i, :stop[i]], "rewards": R[i, :stop[i]]}
            for i in range(n_traj)]


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.ln2(x))


class DecisionTransformer(nn.Module):
    def __init__(self, state_dim, act_dim, hidden, max_ep_len, n_layer=1, n_head=2):
        super().__init__()
        self.embed_timestep = nn.Embedding(max_ep_len, hidden)
        self.embed_return = nn.Linear(1, hidden)
        self.embed_state = nn.Linear(state_dim, hidden)
        self.embed_action = nn.Linear(act_dim, hidden)
        self.embed_ln = nn.LayerNorm(hidden)
        self.blocks = nn.Sequential(*[Block(hidden, n_head) for _ in range(n_layer)])
        self.head = nn.Sequential(nn.Linear(hidden, act_dim), nn.Tanh())

    def forward(self, states, actions, rtg, timesteps):
        b, t = timesteps.shape
        te = self.embed_timestep(timesteps)
        tokens = torch.stack([self.embed_return(rtg) + te, self.embed_state(states) + te,
                              self.embed_action(actions) + te], 2).view(b, 3 * t, -1)
        x = self.blocks(self.embed_ln(tokens))
        return self.head(x[:, 1::3])


class Experiment:
    K, batch_size, max_ep_len, scale = 10, 64, 1000, 100.0

    def __init__(self, seed):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        self.trajectories = log_trajectories(300, self.max_ep_len, seed)
        lens = np.array([len(t["rewards"]) for t in self.trajectories])
        self.p_sample = lens / lens.sum()
        states = np.concatenate([t["observations"] for t in self.trajectories])
        self.state_mean, self.state_std = states.mean(0), states.std(0) + 1e-6
        self.model = DecisionTransformer(4, 1, 32, self.max_ep_len)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=1e-4)

    def get_batch(self):
        B, K = self.batch_size, self.K
        s, a = np.zeros((B, K, 4), np.float32), np.zeros((B, K, 1), np.float32)
        rtg, ts = np.zeros((B, K, 1), np.float32), np.zeros((B, K), np.int64)
        mask = np.zeros((B, K), np.float32)
        picks = np.random.choice(len(self.trajectories), size=B, p=self.p_sample)
        for j, ti in enumerate(picks):
            traj = self.trajectories[ti]
            n = len(traj["rewards"])
            si = random.randint(0, n - 1)
            m = min(K, n - si)
            s[j, -m:] = (traj["observations"][si:si + m] - self.state_mean) / self.state_std
            a[j, -m:] = traj["actions"][si:si + m]
            rtg[j, -m:, 0] = discount_cumsum(traj["rewards"][si:], gamma=1.0)[:m] / self.scale
            ts[j, -m:] = np.arange(si, si + m)
            mask[j, -m:] = 1.0
        return [torch.from_numpy(x) for x in (s, a, rtg, ts, mask)]

    def train_step(self):
        s, a, rtg, ts, mask = self.get_batch()
        pred = self.model(s, a, rtg, ts)
        loss = (((pred - a) ** 2).squeeze(2) * mask).sum() / mask.sum()
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.25)
        self.optimizer.step()
        return loss.detach()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    exp = Experiment(args.seed)
    for _ in range(10):
        exp.train_step()
    updates, losses, t0 = 0, [], time.perf_counter()
    while time.perf_counter() - t0 < args.seconds:
        losses.append(exp.train_step())
        updates += 1
    dt = time.perf_counter() - t0
    print("loss: first 50 %.4f  last 50 %.4f" % (torch.stack(losses[:50]).mean(), torch.stack(losses[-50:]).mean()))
    seen = updates * exp.batch_size * exp.K     # logged environment steps read
    print(json.dumps({"env_steps": seen, "seconds": round(dt, 3), "env_steps_per_s": round(seen / dt, 2),
                      "updates": updates}))


if __name__ == "__main__":
    main()
