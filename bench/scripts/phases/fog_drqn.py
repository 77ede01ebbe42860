"""Recurrent Q-learning: find the harbour in fog, when its light shows only now and then."""
from __future__ import annotations

import argparse
import copy
import json
import math
import os
import random
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns

import numpy as np
import torch
from torch import nn


@dataclass
class Conf:
    seconds: float = 10.0
    seed: int = 0
    hidden: int = 48
    batch: int = 16
    length: int = 16
    burn: int = 4
    every: int = 16
    gamma: float = 0.97
    lr: float = 1e-3
    copy_every: int = 4


class FogHarbour:
    """Sail a small boat; wind and tide push; the light is seen one time in four."""

    def __init__(self, seed: int):
        self.r = random.Random(seed)
        self.ticks = 0

    def reset(self):
        r = self.r
        self.x, self.y, self.head, self.speed = r.uniform(-8, 8), r.uniform(-8, 8), r.uniform(-3.14, 3.14), 0.5
        self.hx, self.hy = r.uniform(-8, 8), r.uniform(-8, 8)
        self.wind, self.force, self.n = r.uniform(-3.14, 3.14), r.uniform(0.1, 0.5), 0
        self.shoals = [(r.uniform(-9, 9), r.uniform(-9, 9), r.uniform(0.4, 1.0)) for _ in range(6)]
        return self._signal()

    def _signal(self):
        lit = self.r.random() < 0.25
        return {"light": (self.hx - self.x, self.hy - self.y) if lit else None, "compass": self.head,
                "speed": self.speed, "depth": self._depth()}

    def _depth(self):
        d = 2.0
        for sx, sy, size in self.shoals:
            d -= size * 1.6 * math.exp(-((self.x - sx) ** 2 + (self.y - sy) ** 2) / (2 * size * size))
        return d

    def step(self, a: int):
        self.ticks += 1
        self.n += 1
        was = math.hypot(self.hx - self.x, self.hy - self.y)
        turn = (-0.35, 0.0, 0.35, 0.0)[a]
        sail = 0.15 if a == 3 else 0.6
        for k in range(6):
            self.head += turn / 6
            push = sail * (1.2 - math.cos(self.head - self.wind))
            self.speed += (push - 0.6 * self.speed) / 6
            tide = 0.15 * math.sin(0.05 * self.n + k / 6)
            self.x += (self.speed * math.cos(self.head) + self.force * 0.3 * math.cos(self.wind) + tide) / 6
            self.y += (self.speed * math.sin(self.head) + self.force * 0.3 * math.sin(self.wind)) / 6
        self.wind += self.r.gauss(0, 0.05)
        far = math.hypot(self.hx - self.x, self.hy - self.y)
        aground = self._depth() < 0.5
        home = far < 1.2
        lost = abs(self.x) > 14 or abs(self.y) > 14
        reward = 0.3 * (was - far) + (5 if home else 0) - (2 if aground or lost else 0) - 0.02
        return self._signal(), reward, home or aground or lost, self.n >= 100


def encode(sig, last_action):
    v = np.zeros(11, dtype=np.float32)
    if sig["light"] is not None:
        dx, dy = sig["light"]
        d = math.hypot(dx, dy)
        b = math.atan2(dy, dx) - sig["compass"]
        v[0], v[1], v[2], v[3] = 1.0, math.sin(b), math.cos(b), d / 10
    v[4], v[5] = sig["speed"], sig["depth"]
    v[6] = math.sin(sig["compass"])
    if last_action is not None:
        v[7 + last_action] = 1.0
    return v


class GruQ(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.inp = nn.Linear(11, hidden)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 4)

    def forward(self, x, h=None):
        y, h = self.gru(torch.relu(self.inp(x)), h)
        return self.out(y), h


@dataclass
class Voyage:
    obs: list = field(default_factory=list)
    act: list = field(default_factory=list)
    rew: list = field(default_factory=list)
    end: list = field(default_factory=list)


class Archive:
    def __init__(self, room=400):
        self.voyages, self.room = [], room

    def file(self, v: Voyage):
        packed = (np.stack(v.obs), np.array(v.act), np.array(v.rew, dtype=np.float32),
                  np.array(v.end, dtype=np.float32))
        self.voyages.append(packed)
        if len(self.voyages) > self.room:
            self.voyages.pop(0)

    def pieces(self, n, length):
        o = np.zeros((n, length + 1, 11), np.float32)
        a, r = np.zeros((n, length), np.int64), np.zeros((n, length), np.float32)
        e, m = np.zeros((n, length), np.float32), np.zeros((n, length), np.float32)
        for i in range(n):
            O, A, R, E = random.choice(self.voyages)
            s = random.randint(0, max(0, len(A) - length))
            k = min(length, len(A) - s)
            o[i, :k + 1] = O[s:s + k + 1]
            a[i, :k], r[i, :k], e[i, :k], m[i, :k] = A[s:s + k], R[s:s + k], E[s:s + k], 1.0
        return [torch.from_numpy(z) for z in (o, a, r, e, m)]


class Gauge:
    """Every stretch goes to one slot; what lies between goes to the last."""

    def __init__(self, n):
        self.w, self.edge = [0] * n, perf_counter_ns()
        self.origin = self.edge

    @contextmanager
    def at(self, i):
        t = perf_counter_ns()
        self.w[-1] += t - self.edge
        yield
        self.edge = perf_counter_ns()
        self.w[i] += self.edge - t

    def past(self):
        return (perf_counter_ns() - self.origin) / 1e9


def train(c: Conf):
    random.seed(c.seed)
    torch.manual_seed(c.seed)
    torch.set_num_threads(1)
    sea, archive = FogHarbour(c.seed), Archive()
    net = GruQ(c.hidden)
    old = copy.deepcopy(net)
    opt = torch.optim.Adam(net.parameters(), lr=c.lr)
    net(torch.zeros(c.batch, c.length, 11))[0].sum().backward()
    opt.zero_grad(set_to_none=True)
    port = tempfile.TemporaryDirectory()
    steps = updates = trips = 0
    homes, score, avg_loss = 0, None, 0.0
    g = Gauge(12)
    while g.past() < c.seconds:
        with g.at(0):
            sig = sea.reset()
        with g.at(1):
            x = encode(sig, None)
        v, h, total, over = Voyage(), None, 0.0, False
        v.obs.append(x)
        while not over and g.past() < c.seconds:
            eps = max(0.05, 1 - steps / 6000)
            with g.at(2), torch.no_grad():
                q, h = net(torch.from_numpy(x).view(1, 1, -1), h)
                a = random.randrange(4) if random.random() < eps else int(q.argmax())
            with g.at(0):
                sig, r, end, late = sea.step(a)
            with g.at(1):
                x = encode(sig, a)
            with g.at(3):
                v.obs.append(x)
                v.act.append(a)
                v.rew.append(r)
                v.end.append(end)
            total += r
            steps += 1
            over = end or late
            if steps % c.every == 0 and len(archive.voyages) >= 5:
                with g.at(4):
                    o, ac, re, en, m = archive.pieces(c.batch, c.length)
                with g.at(5):
                    q, _ = net(o)
                    with torch.no_grad():
                        z, _ = old(o)
                        best = q[:, 1:].argmax(-1, keepdim=True)
                        y = re + c.gamma * (1 - en) * z[:, 1:].gather(-1, best)[..., 0]
                    m[:, :c.burn] = 0
                    err = q[:, :-1].gather(-1, ac[..., None])[..., 0] - y
                    loss = (m * nn.functional.huber_loss(err, torch.zeros_like(err), reduction="none")).sum()
                    loss = loss / m.sum().clamp(min=1)
                with g.at(7):
                    opt.zero_grad(set_to_none=True)
                with g.at(6):
                    loss.backward()
                with g.at(7):
                    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
                    opt.step()
                updates += 1
                avg_loss += 0.01 * (loss.item() - avg_loss)
                if updates % c.copy_every == 0:
                    with g.at(8):
                        old.load_state_dict(net.state_dict())
                if updates % 25 == 0:
                    with g.at(10):
                        torch.save(net.state_dict(), os.path.join(port.name, "fog.pt"))
        if not over:
            break
        with g.at(3):
            archive.file(v)
        trips += 1
        homes += total > 3
        score = total if score is None else 0.97 * score + 0.03 * total
        if trips % 4 == 0:
            with g.at(9), open(os.path.join(port.name, "log.txt"), "a") as f:
                f.write(f"{trips}\t{steps}\t{score:.3f}\t{homes}\t{avg_loss:.5f}\n")
    g.w[-1] += perf_counter_ns() - g.edge
    took = (perf_counter_ns() - g.origin) / 1e9
    port.cleanup()
    head = ["env", "observe", "act", "store", "sample", "forward", "backward", "optimiser", "target", "log", "save", "own"]
    return {"env_steps": steps, "updates": updates, "episodes": trips, "seconds": took,
            "phases": {k: n / 1e9 for k, n in zip(head, g.w)}, "calls_of_step": sea.ticks}


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=Conf.seconds)
    ap.add_argument("--seed", type=int, default=Conf.seed)
    print(json.dumps(train(Conf(**vars(ap.parse_args())))))
