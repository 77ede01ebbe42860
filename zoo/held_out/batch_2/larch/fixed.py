"""Policy distillation: a big teacher is compressed into a small student on the student's own states."""
import argparse
import json
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

# ---------------------------------------------------------------- world: balance poles, batched


class PoleBatch:
    def __init__(self, n, seed):
        self.n = n
        self.g = np.random.default_rng(seed)
        self.s = self.g.uniform(-0.05, 0.05, (n, 4))
        self.age = np.zeros(n, np.int64)

    def obs(self):
        return self.s.astype(np.float32)

    def step(self, a):
        x, xd, th, thd = self.s.T
        force = (a - 2) * 6.0
        c, s = np.cos(th), np.sin(th)
        tmp = (force + 0.05 * thd ** 2 * s) / 1.1
        tha = (9.8 * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c ** 2 / 1.1))
        xa = tmp - 0.05 * tha * c / 1.1
        self.s = np.stack([x + 0.02 * xd, xd + 0.02 * xa, th + 0.02 * thd, thd + 0.02 * tha], axis=1)
        self.age += 1
        done = (np.abs(self.s[:, 0]) > 2.4) | (np.abs(self.s[:, 2]) > 0.21) | (self.age >= 500)
        lengths = self.age[done].tolist()
        k = int(done.sum())
        if k:
            self.s[done] = self.g.uniform(-0.05, 0.05, (k, 4))
            self.age[done] = 0
        return self.obs(), lengths


# ---------------------------------------------------------------- networks


def make_net(sizes):
    layers = []
    for i, (a, b) in enumerate(zip(sizes[:-1], sizes[1:])):
        layers.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


def fit_teacher(net, seed, rounds=40):
    """Supervised start of the teacher from a linear controller (stands in for a checkpoint)."""
    gen = torch.Generator().manual_seed(seed)
    gain = torch.tensor([0.5, 1.0, 18.0, 3.0])
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    scale = torch.tensor([1.0, 1.0, 0.1, 1.0])
    for _ in range(rounds):
        x = torch.randn(256, 4, generator=gen) * scale
        label = ((x * gain).sum(1) * 0.8).round().clamp(-2, 2).long() + 2
        loss = F.cross_entropy(net(x), label)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return net.eval().requires_grad_(False)


class Distiller:
    def __init__(self, teacher, student, temperature=0.5, lr=1e-3):
        self.teacher, self.student, self.T = teacher, student, temperature
        self.opt = torch.optim.Adam(student.parameters(), lr=lr, fused=True)

    def minibatch(self, x, wanted):
        logq = F.log_softmax(self.student(x), dim=-1)
        loss = F.kl_div(logq, wanted, reduction="batchmean")
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.detach()

    def fit(self, states, epochs, size):
        total = torch.zeros(())
        n = states.shape[0]
        with torch.no_grad():
            wanted = F.softmax(self.teacher(states) / self.T, dim=-1)
        for _ in range(epochs):
            order = torch.randperm(n)
            for i in range(0, n, size):
                k = order[i:i + size]
                total += self.minibatch(states[k], wanted[k])
        return total.item() / (epochs * n // size)


# ---------------------------------------------------------------- run


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=20)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--poles", type=int, default=32)
    ap.add_argument("--rollout", type=int, default=32)
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--minibatch", type=int, default=256)
    opt = ap.parse_args()
    torch.manual_seed(opt.seed)
    torch.set_num_threads(1)

    teacher = fit_teacher(make_net([4, 384, 384, 5]), opt.seed)
    student = make_net([4, 64, 64, 5])
    distiller = Distiller(teacher, student)
    world = PoleBatch(opt.poles, opt.seed)
    store = torch.zeros(opt.rollout, opt.poles, 4)
    o = world.obs()
    lengths, total, rounds = [], 0, 0
    t0 = time.perf_counter()
    t1, base = t0, 0
    while time.perf_counter() - t0 < opt.seconds:
        for t in range(opt.rollout):
            store[t] = torch.from_numpy(o)
            with torch.no_grad():
                act = torch.multinomial(F.softmax(student(store[t]), dim=-1), 1)
            o, ended = world.step(act.squeeze(1).numpy())
            lengths += ended
            total += opt.poles
        kl = distiller.fit(store.view(-1, 4), opt.epochs, opt.minibatch)
        rounds += 1
        if rounds == 5:
            t1, base = time.perf_counter(), total
        if rounds % 100 == 0:
            print(f"round {rounds}: KL {kl:.4f}, episode length {np.mean(lengths[-50:] or [0]):.0f}")
    span = time.perf_counter() - t1
    print(json.dumps({"env_steps": total - base, "seconds": span, "env_steps_per_s": (total - base) / span}))


if __name__ == "__main__":
    main()
