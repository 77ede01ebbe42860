import argparse
import copy
import json
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

# TD3 on a hand-made reacher: a two-link planar arm must bring its tip to a goal.


class TwoLinkArm:
    L1, L2, DT = 0.6, 0.5, 0.05

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.q = self.rng.uniform(-math.pi, math.pi, 2)
        self.dq = np.zeros(2)
        r, phi = self.rng.uniform(0.3, 1.0), self.rng.uniform(-math.pi, math.pi)
        self.goal = np.array([r * math.cos(phi), r * math.sin(phi)])
        self.t = 0
        return self.observe()

    def tip(self):
        a, b = self.q[0], self.q[0] + self.q[1]
        return np.array([self.L1 * math.cos(a) + self.L2 * math.cos(b), self.L1 * math.sin(a) + self.L2 * math.sin(b)])

    def observe(self):
        d = self.goal - self.tip()
        q = self.q
        return np.array([math.cos(q[0]), math.sin(q[0]), math.cos(q[1]), math.sin(q[1]), self.dq[0], self.dq[1],
                         self.goal[0], self.goal[1], d[0], d[1]], dtype=np.float32)

    def step(self, u):
        self.dq = np.clip(0.9 * self.dq + self.DT * 8.0 * u, -4, 4)
        self.q = (self.q + self.DT * self.dq + math.pi) % (2 * math.pi) - math.pi
        self.t += 1
        obs = self.observe()
        reward = -math.hypot(obs[8], obs[9]) - 0.01 * float(u @ u)
        return obs, reward, self.t >= 100


parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=20.0)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--hidden", type=int, default=128)
parser.add_argument("--gamma", type=float, default=0.98)
parser.add_argument("--tau", type=float, default=0.005)
parser.add_argument("--policy-noise", type=float, default=0.2)
parser.add_argument("--noise-clip", type=float, default=0.5)
parser.add_argument("--smoothing-samples", type=int, default=4)
parser.add_argument("--policy-delay", type=int, default=2)


class Actor(nn.Module):
    def __init__(self, s, a, h):
        super().__init__()
        self.l1, self.l2, self.l3 = nn.Linear(s, h), nn.Linear(h, h), nn.Linear(h, a)

    def forward(self, x):
        return torch.tanh(self.l3(F.relu(self.l2(F.relu(self.l1(x))))))


class TwinCritic(nn.Module):
    def __init__(self, s, a, h):
        super().__init__()
        self.a1, self.a2, self.a3 = nn.Linear(s + a, h), nn.Linear(h, h), nn.Linear(h, 1)
        self.b1, self.b2, self.b3 = nn.Linear(s + a, h), nn.Linear(h, h), nn.Linear(h, 1)

    def q1(self, x):
        return self.a3(F.relu(self.a2(F.relu(self.a1(x))))).squeeze(-1)

    def forward(self, s, a):
        x = torch.cat([s, a], dim=-1)
        return self.q1(x), self.b3(F.relu(self.b2(F.relu(self.b1(x))))).squeeze(-1)


def main():
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    torch.set_num_threads(1)
    env = TwoLinkArm(args.seed)
    S, A, CAP = 10, 2, 100_000
    actor, critic = Actor(S, A, args.hidden), TwinCritic(S, A, args.hidden)
    actor_targ, critic_targ = copy.deepcopy(actor), copy.deepcopy(critic)
    actor_opt = torch.optim.Adam(actor.parameters(), lr=1e-3, fused=True)
    critic_opt = torch.optim.Adam(critic.parameters(), lr=1e-3, fused=True)
    live = [*actor.parameters(), *critic.parameters()]
    lagged = [*actor_targ.parameters(), *critic_targ.parameters()]

    buf_s = np.empty((CAP, S), np.float32)
    buf_a = np.empty((CAP, A), np.float32)
    buf_r = np.empty(CAP, np.float32)
    buf_n = np.empty((CAP, S), np.float32)
    ptr = size = 0
    step = updates = 0
    ep_return, returns = 0.0, []
    s = env.reset()
    t_start = time.perf_counter()
    t_mark = step_mark = None
    while True:
        if step < 500:
            a = np.random.uniform(-1, 1, A).astype(np.float32)
        else:
            with torch.no_grad():
                a = actor(torch.from_numpy(s)).numpy()
            a = np.clip(a + 0.1 * np.random.randn(A), -1, 1).astype(np.float32)
        n, r, done = env.step(a)
        buf_s[ptr], buf_a[ptr], buf_r[ptr], buf_n[ptr] = s, a, r, n
        ptr, size = (ptr + 1) % CAP, min(size + 1, CAP)
        s = n
        ep_return += r
        step += 1
        if done:
            returns.append(ep_return)
            ep_return = 0.0
            s = env.reset()

        if step > 500:
            idx = np.random.randint(0, size, args.batch_size)
            bs, ba = torch.from_numpy(buf_s[idx]), torch.from_numpy(buf_a[idx])
            br, bn = torch.from_numpy(buf_r[idx]), torch.from_numpy(buf_n[idx])

            # several smoothing draws per next state, averaged
            k = args.smoothing_samples
            with torch.no_grad():
                eps = (torch.randn(k, args.batch_size, A) * args.policy_noise).clamp(-args.noise_clip, args.noise_clip)
                next_a = (actor_targ(bn) + eps).clamp(-1, 1)
                tq1, tq2 = critic_targ(bn.expand(k, -1, -1), next_a)
                y = br + args.gamma * torch.min(tq1, tq2).mean(0)

            q1, q2 = critic(bs, ba)
            critic_loss = F.mse_loss(q1, y) + F.mse_loss(q2, y)
            critic_opt.zero_grad()
            critic_loss.backward()
            critic_opt.step()

            updates += 1
            if updates % args.policy_delay == 0:
                critic.requires_grad_(False)
                actor_loss = -critic.q1(torch.cat([bs, actor(bs)], dim=-1)).mean()
                actor_opt.zero_grad()
                actor_loss.backward()
                actor_opt.step()
                critic.requires_grad_(True)
                with torch.no_grad():
                    torch._foreach_lerp_(lagged, live, args.tau)

            now = time.perf_counter()
            if t_mark is None and updates == 20:
                t_mark, step_mark = now, step
            if now - t_start > args.seconds:
                break

    span = now - t_mark
    print(f"return over the last ten episodes: {np.mean(returns[-10:]):.2f}")
    print(json.dumps({"env_steps": step - step_mark, "seconds": span, "env_steps_per_s": (step - step_mark) / span}))


if __name__ == "__main__":
    main()
