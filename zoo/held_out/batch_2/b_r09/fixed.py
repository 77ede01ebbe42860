"""PPO on many pendulum carts; worker processes play whole rollouts in memory shared with the learner."""
import argparse
import json
import multiprocessing as mp
import signal
import time
from multiprocessing.sharedctypes import RawArray

import numpy as np
import torch
import torch.nn as nn

G, DT = 9.81, 0.02
HIDDEN = 64


class CartBatch:
    """A number of carts with a pole each, as arrays."""

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.n = n
        self.x = np.zeros((n, 4))
        self.age = np.zeros(n, dtype=int)
        self.restart(np.ones(n, dtype=bool))

    def restart(self, who):
        k = int(who.sum())
        if k:
            self.x[who] = self.rng.uniform(-0.1, 0.1, (k, 4))
            self.age[who] = 0

    def advance(self, force):
        for _ in range(4):
            p, v, th, om = self.x.T
            s, c = np.sin(th), np.cos(th)
            tmp = (10.0 * force + 0.05 * om ** 2 * s) / 1.1
            al = (G * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c ** 2 / 1.1))
            ac = tmp - 0.05 * al * c / 1.1
            self.x += DT / 4 * np.stack([v, ac, om, al], axis=1)
        self.age += 1
        fell = (np.abs(self.x[:, 0]) > 2.4) | (np.abs(self.x[:, 2]) > 0.3)
        reward = 1.0 - 0.2 * np.abs(self.x[:, 0]) - 0.5 * fell
        done = fell | (self.age >= 400)
        self.restart(done)
        return reward, done


class Shared:
    """Blocks of memory that all processes see; `turn` counts the rollouts asked for, `ready` those made."""

    def __init__(self, workers, per_worker, horizon, n_weights):
        self.workers, self.per_worker, self.horizon = workers, per_worker, horizon
        n = workers * per_worker
        self.obs = self._block("f", (horizon + 1) * n * 4, np.float32).reshape(horizon + 1, n, 4)
        self.act, self.rew, self.done = (
            self._block("f", horizon * n, np.float32).reshape(horizon, n) for _ in range(3))
        self.weights = self._block("f", n_weights, np.float32)
        self.turn = self._block("q", workers, np.int64)
        self.ready = self._block("q", workers, np.int64)
        ctx = mp.get_context("fork")
        self.go = [ctx.Semaphore(0) for _ in range(workers)]
        self.made = [ctx.Semaphore(0) for _ in range(workers)]

    @staticmethod
    def _block(code, n, dtype):
        return np.frombuffer(RawArray(code, n), dtype=dtype)

    def rows(self, w):
        return slice(w * self.per_worker, (w + 1) * self.per_worker)

    # called by the learner
    def ask(self, weights):
        self.weights[:] = weights
        self.turn += 1
        for go in self.go:
            go.release()

    def collect(self):
        for made in self.made:
            made.acquire()

    # called by worker w
    def wait_turn(self, w):
        self.go[w].acquire()
        return self.turn[w]

    def report(self, w):
        self.ready[w] = self.turn[w]
        self.made[w].release()


def unpack(flat):
    """Weights of the policy as NumPy matrices, in the order of Net.mu."""
    out, k = [], 0
    for a, b in ((4, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 1)):
        W = flat[k:k + a * b].reshape(b, a).T
        k += a * b
        out.append((W, flat[k:k + b]))
        k += b
    return out, flat[k]


def run_worker(w, shared, seed, lifetime):
    signal.alarm(lifetime)      # no orphans if the learner is killed
    carts = CartBatch(shared.per_worker, seed + w)
    rows = shared.rows(w)
    while shared.wait_turn(w):
        (one, two, three), log_sigma = unpack(shared.weights)
        sigma = np.exp(log_sigma)
        for t in range(shared.horizon):
            x = carts.x.astype(np.float32)
            h = np.tanh(np.tanh(x @ one[0] + one[1]) @ two[0] + two[1])
            a = (h @ three[0] + three[1])[:, 0] + sigma * carts.rng.standard_normal(len(x))
            shared.obs[t, rows] = x
            shared.act[t, rows] = a
            shared.rew[t, rows], shared.done[t, rows] = carts.advance(np.clip(a, -1, 1))
        shared.obs[shared.horizon, rows] = carts.x
        shared.report(w)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mu = nn.Sequential(
            nn.Linear(4, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
        self.v = nn.Sequential(
            nn.Linear(4, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
        self.log_sigma = nn.Parameter(torch.tensor(-0.5))

    def logp(self, o, a):
        z = (a - self.mu(o).squeeze(-1)) / self.log_sigma.exp()
        return -0.5 * z * z - self.log_sigma

    @torch.no_grad()
    def flat_policy(self):
        parts = [p.flatten() for p in self.mu.parameters()] + [self.log_sigma.view(1)]
        return torch.cat(parts).numpy()


class PPO:
    def __init__(self, net, shared, gamma=0.99, lam=0.95, clip=0.2, epochs=5, minibatch=512):
        self.net, self.shared = net, shared
        self.gamma, self.lam, self.clip = gamma, lam, clip
        self.epochs, self.minibatch = epochs, minibatch
        self.opt = torch.optim.Adam(net.parameters(), lr=7e-4)

    def update(self):
        o_all, a, r, d = (torch.from_numpy(m) for m in
                          (self.shared.obs, self.shared.act, self.shared.rew, self.shared.done))
        with torch.no_grad():
            v = self.net.v(o_all).squeeze(-1)
            gae, nxt = torch.zeros(r.shape[1]), v[-1]
            adv = torch.empty_like(r)
            for t in range(len(r) - 1, -1, -1):
                live = 1 - d[t]
                gae = r[t] + self.gamma * nxt * live - v[t] + self.gamma * self.lam * live * gae
                adv[t], nxt = gae, v[t]
            ret = (adv + v[:-1]).flatten()
            adv = ((adv - adv.mean()) / (adv.std() + 1e-8)).flatten()
            o, a = o_all[:-1].reshape(-1, 4), a.reshape(-1)
            lp = self.net.logp(o, a)
        for _ in range(self.epochs):
            for k in torch.randperm(len(a)).split(self.minibatch):
                ratio = (self.net.logp(o[k], a[k]) - lp[k]).exp()
                gain = torch.min(ratio * adv[k], ratio.clamp(1 - self.clip, 1 + self.clip) * adv[k]).mean()
                loss = (self.net.v(o[k]).squeeze(-1) - ret[k]).pow(2).mean() * 0.5 - gain
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=8.0)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--carts", type=int, default=16)
    ap.add_argument("--horizon", type=int, default=64)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)

    net = Net()
    first = net.flat_policy()
    shared = Shared(args.workers, args.carts, args.horizon, len(first))
    ctx = mp.get_context("fork")
    procs = [ctx.Process(target=run_worker, daemon=True,
                         args=(w, shared, 100 * args.seed, int(args.seconds) + 90))
             for w in range(args.workers)]
    for p in procs:
        p.start()
    algo = PPO(net, shared)
    steps = steps0 = updates = 0
    mark = None
    start = now = time.perf_counter()
    while now - start < args.seconds:
        shared.ask(net.flat_policy())
        shared.collect()
        steps += shared.rew.size
        algo.update()
        updates += 1
        if updates % 10 == 0:
            falls = max(shared.done.sum(), 1.0)
            print(f"{steps} steps, about {shared.done.size / falls:.0f} steps per trial")
        now = time.perf_counter()
        if mark is None and now - start >= 0.8:
            mark, steps0 = now, steps
    for p in procs:
        p.terminate()
        p.join()
    k, s = steps - steps0, now - mark
    print(json.dumps({"env_steps": k, "seconds": round(s, 3), "env_steps_per_s": round(k / s, 2), "updates": updates}))


if __name__ == "__main__":
    main()
