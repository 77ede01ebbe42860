"""Parallel collection: each worker process owns one heat-plate test stand, the main process learns (A2C).

The stands are emulated here.  Like the real ones they answer in real time: after a command the
sensor chip needs CONVERSION seconds until the new temperatures can be read.
"""
import argparse
import json
import multiprocessing as mp
import time

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal

CONVERSION = 0.004


class HeatPlate:
    """A plate with nine burners below; wanted is a given pattern of temperature."""

    def __init__(self, seed, size=48, substeps=15, length=50):
        self.rng = np.random.default_rng(seed)
        self.size, self.substeps, self.length = size, substeps, length
        yy, xx = np.mgrid[0:size, 0:size] / (size - 1)
        spots = [(a, b) for a in (0.2, 0.5, 0.8) for b in (0.2, 0.5, 0.8)]
        self.burners = np.stack([np.exp(-((xx - a) ** 2 + (yy - b) ** 2) / 0.01) for a, b in spots])
        self.probe = [(int(a * (size - 1)), int(b * (size - 1))) for a, b in spots]

    def observe(self):
        time.sleep(CONVERSION)
        now = np.array([self.T[p] for p in self.probe])
        return np.concatenate([now, self.wanted]).astype(np.float32)

    def reset(self):
        self.T = np.zeros((self.size, self.size))
        self.wanted = self.rng.uniform(0.2, 1.0, 9)
        self.t = 0
        return self.observe()

    def step(self, power):
        heat = 0.01 * np.tensordot(np.clip(power, 0.0, 1.0), self.burners, axes=1)
        T = self.T
        for _ in range(self.substeps):
            lap = T[:-2, 1:-1] + T[2:, 1:-1] + T[1:-1, :-2] + T[1:-1, 2:] - 4.0 * T[1:-1, 1:-1]
            T[1:-1, 1:-1] += 0.2 * lap
            T += heat
            T *= 0.998
        self.t += 1
        obs = self.observe()
        reward = -float(np.abs(obs[:9] - obs[9:]).mean())
        return obs, reward, self.t >= self.length


def worker(pipe, seed):
    env = HeatPlate(seed)
    while True:
        what, data = pipe.recv()
        if what == "step":
            obs, reward, done = env.step(data)
            if done:
                obs = env.reset()
            pipe.send((obs, reward, done))
        elif what == "reset":
            pipe.send(env.reset())
        else:
            pipe.close()
            return


class Crew:
    """The workers, seen as one batch of environments."""

    def __init__(self, n, seed):
        ctx = mp.get_context("fork")
        self.pipes, self.procs = [], []
        for i in range(n):
            ours, theirs = ctx.Pipe()
            p = ctx.Process(target=worker, args=(theirs, seed * 1000 + i), daemon=True)
            p.start()
            theirs.close()
            self.pipes.append(ours)
            self.procs.append(p)

    def reset(self):
        for pipe in self.pipes:
            pipe.send(("reset", None))
        return np.stack([pipe.recv() for pipe in self.pipes])

    def step(self, actions):
        for pipe, action in zip(self.pipes, actions):
            pipe.send(("step", action))
        results = [pipe.recv() for pipe in self.pipes]
        obs, rewards, dones = zip(*results)
        return np.stack(obs), np.array(rewards, np.float32), np.array(dones, np.float32)

    def close(self):
        for pipe in self.pipes:
            pipe.send(("close", None))
        for p in self.procs:
            p.join(timeout=2)


class ActorCritic(nn.Module):
    def __init__(self, n_obs, n_act):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(n_obs, 64), nn.Tanh(), nn.Linear(64, n_act))
        self.critic = nn.Sequential(nn.Linear(n_obs, 64), nn.Tanh(), nn.Linear(64, 1))
        self.log_std = nn.Parameter(torch.full((n_act,), -1.0))

    def dist(self, obs):
        return Normal(torch.sigmoid(self.actor(obs)), self.log_std.exp(), validate_args=False)


def learn(net, opt, obs, act, rew, done, last, gamma):
    with torch.no_grad():
        running = net.critic(last).squeeze(-1)
    targets = torch.empty_like(rew)
    for t in range(len(rew) - 1, -1, -1):
        running = rew[t] + gamma * (1 - done[t]) * running
        targets[t] = running
    values = net.critic(obs).squeeze(-1)
    advantage = targets - values.detach()
    dist = net.dist(obs)
    logp = dist.log_prob(act).sum(-1)
    loss = (-(logp * advantage).mean() + 0.5 * (targets - values).pow(2).mean()
            - 1e-3 * dist.entropy().sum(-1).mean())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    opt.step()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=8.0)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--workers", type=int, default=4)
    ap.add_argument("--horizon", type=int, default=10)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)

    crew = Crew(args.workers, args.seed)
    net = ActorCritic(18, 9)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    H, n = args.horizon, args.workers
    O, A = torch.zeros(H, n, 18), torch.zeros(H, n, 9)
    R, D = torch.zeros(H, n), torch.zeros(H, n)
    obs = torch.from_numpy(crew.reset())
    steps = steps0 = updates = 0
    mark, smooth = None, None
    start = now = time.perf_counter()
    while now - start < args.seconds:
        for t in range(H):
            with torch.no_grad():
                act = net.dist(obs).sample()
            nxt, rew, done = crew.step(act.numpy())
            O[t], A[t], R[t], D[t] = obs, act, torch.from_numpy(rew), torch.from_numpy(done)
            obs = torch.from_numpy(nxt)
            steps += n
        learn(net, opt, O, A, R, D, obs, 0.9)
        updates += 1
        mean = R.mean().item()
        smooth = mean if smooth is None else 0.95 * smooth + 0.05 * mean
        if updates % 25 == 0:
            print(f"{steps} steps, reward {smooth:.4f}")
        now = time.perf_counter()
        if mark is None and now - start >= 1.0:
            mark, steps0 = now, steps
    crew.close()
    k, s = steps - steps0, now - mark
    print(json.dumps({"env_steps": k, "seconds": round(s, 3), "env_steps_per_s": round(k / s, 2), "updates": updates}))


if __name__ == "__main__":
    main()
