"""Moth night: a small DQN for a garden game.

Moths flutter about and are drawn to the keeper's light, bats hunt the keeper.
"""
import argparse
import copy
import csv
import json
import os
import random
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]
now = time.perf_counter_ns


class MothNight:
    SIDE = 12

    def __init__(self, rng, moths=8, bats=2, dawn=160):
        self.rng, self.n_moths, self.n_bats, self.dawn = rng, moths, bats, dawn
        self.turns_made = 0

    def begin(self):
        s, r = self.SIDE, self.rng
        self.turn = 0
        self.me = [s // 2, s // 2]
        self.moths = [[r.randrange(s), r.randrange(s)] for _ in range(self.n_moths)]
        self.bats = [[(s - 1) * (i % 2), (s - 1) * (i // 2)] for i in range(self.n_bats)]
        self.hedge = {(r.randrange(s), r.randrange(s)) for _ in range(10)} - {tuple(self.me)}

    def _shift(self, p, dx, dy):
        x = min(self.SIDE - 1, max(0, p[0] + dx))
        y = min(self.SIDE - 1, max(0, p[1] + dy))
        if (x, y) not in self.hedge:
            p[0], p[1] = x, y

    def _towards(self, p):
        dx, dy = self.me[0] - p[0], self.me[1] - p[1]
        if abs(dx) > abs(dy):
            self._shift(p, 1 if dx > 0 else -1, 0)
        elif dy:
            self._shift(p, 0, 1 if dy > 0 else -1)

    def advance(self, move):
        self.turns_made += 1
        r = self.rng
        gain, caught = 0.0, False
        self._shift(self.me, *STEPS[move])
        for m in self.moths:
            near = abs(m[0] - self.me[0]) + abs(m[1] - self.me[1])
            if near < 4 and r.random() < 0.35:
                self._towards(m)
            else:
                self._shift(m, *r.choice(STEPS))
            if m == self.me:
                gain += 1.0
                m[0], m[1] = r.randrange(self.SIDE), r.randrange(self.SIDE)
        for b in self.bats:
            if r.random() < 0.45:
                self._towards(b)
            if b == self.me:
                gain -= 3.0
                caught = True
        self.turn += 1
        return gain, caught or self.turn >= self.dawn

    def picture(self):
        p = np.zeros((4, self.SIDE, self.SIDE), dtype=np.float32)
        p[0, self.me[0], self.me[1]] = 1
        for x, y in self.moths:
            p[1, x, y] += 1
        for x, y in self.bats:
            p[2, x, y] = 1
        for x, y in self.hedge:
            p[3, x, y] = 1
        return p


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(4, 16, 3, padding=1)
        self.c2 = nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.l1 = nn.Linear(16 * 36, 64)
        self.l2 = nn.Linear(64, len(STEPS))

    def forward(self, x):
        x = F.relu(self.c2(F.relu(self.c1(x)))).flatten(1)
        return self.l2(F.relu(self.l1(x)))


class Shelf:
    def __init__(self, size):
        side = MothNight.SIDE
        self.x = np.zeros((size, 4, side, side), np.float32)
        self.y = np.zeros((size, 4, side, side), np.float32)
        self.a = np.zeros(size, np.int64)
        self.g = np.zeros(size, np.float32)
        self.e = np.zeros(size, np.float32)
        self.size, self.n, self.k = size, 0, 0

    def put(self, *what):
        for v, one in zip((self.x, self.a, self.g, self.y, self.e), what):
            v[self.k] = one
        self.k = (self.k + 1) % self.size
        self.n = min(self.n + 1, self.size)

    def take(self, m):
        i = np.random.randint(0, self.n, m)
        return [torch.from_numpy(v[i]) for v in (self.x, self.a, self.g, self.y, self.e)]


def nearest(game):
    return min(abs(x - game.me[0]) + abs(y - game.me[1]) for x, y in game.moths)


def try_out(net, seed, nights=1):
    game = MothNight(random.Random(seed), dawn=80)
    total = 0.0
    for _ in range(nights):
        game.begin()
        over = False
        while not over:
            with torch.no_grad():
                move = int(net(torch.from_numpy(game.picture())[None]).argmax())
            gain, over = game.advance(move)
            total += gain
    return total / nights, game.turns_made


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=10)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    torch.set_num_threads(1)
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)

    out = tempfile.TemporaryDirectory()
    table = open(os.path.join(out.name, "nights.csv"), "w", newline="")
    writer = csv.writer(table)
    net = Net()
    twin = copy.deepcopy(net)
    opt = torch.optim.Adam(net.parameters(), lr=5e-4)
    shelf = Shelf(20000)
    game = MothNight(random.Random(args.seed))
    for _ in range(3):
        F.mse_loss(net(torch.zeros(32, 4, 12, 12)), torch.zeros(32, 5)).backward()
        opt.zero_grad()

    n = updates = nights = tried = 0
    loss_sum, night_gain = 0.0, 0.0
    w = [0] * 13
    t0 = t = now()

    def lap(i):
        nonlocal t
        u = now()
        w[i] += u - t
        t = u

    stop = t0 + int(args.seconds * 1e9)
    game.begin()
    lap(0)
    x = game.picture()
    lap(2)
    while t < stop:
        eps = max(0.05, 1.0 - n / 3000)
        before = nearest(game)
        lap(12)
        if random.random() < eps:
            move = random.randrange(len(STEPS))
        else:
            with torch.no_grad():
                move = int(net(torch.from_numpy(x)[None]).argmax())
        lap(1)
        gain, over = game.advance(move)
        lap(0)
        y = game.picture()
        lap(2)
        shaped = gain + 0.05 * (before - nearest(game))
        night_gain += gain
        n += 1
        lap(12)
        shelf.put(x, move, shaped, y, float(over))
        lap(3)
        x = y
        if over:
            nights += 1
            lap(12)
            writer.writerow([nights, n, f"{night_gain:.2f}", f"{eps:.3f}", loss_sum / max(1, updates)])
            table.flush()
            lap(10)
            night_gain = 0.0
            game.begin()
            lap(0)
            x = game.picture()
            lap(2)
        if shelf.n >= 200 and n % 4 == 0:
            bx, ba, bg, by, be = shelf.take(32)
            lap(4)
            q = net(bx).gather(1, ba[:, None]).squeeze(1)
            with torch.no_grad():
                best = net(by).argmax(1, keepdim=True)
                goal = bg + 0.97 * (1 - be) * twin(by).gather(1, best).squeeze(1)
            loss = F.smooth_l1_loss(q, goal)
            lap(5)
            opt.zero_grad()
            lap(7)
            loss.backward()
            lap(6)
            nn.utils.clip_grad_norm_(net.parameters(), 10.0)
            opt.step()
            lap(7)
            with torch.no_grad():
                for a, b in zip(twin.parameters(), net.parameters()):
                    a.lerp_(b, 0.01)
            lap(8)
            loss_sum += loss.item()
            updates += 1
            lap(12)
            if updates % 40 == 0:
                torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "n": n},
                           os.path.join(out.name, "moth.pt"))
                lap(11)
            if updates % 60 == 0:
                score, k = try_out(net, 1000 + updates)
                tried += k
                lap(9)
    lap(12)
    table.close()
    out.cleanup()
    keys = ["env", "act", "observe", "store", "sample", "forward", "backward", "optimiser", "target",
            "evaluate", "log", "save", "own"]
    print(json.dumps({"env_steps": n, "updates": updates, "episodes": nights, "seconds": (t - t0) / 1e9,
                      "phases": {k: v / 1e9 for k, v in zip(keys, w)},
                      "calls_of_step": game.turns_made + tried}))


if __name__ == "__main__":
    main()
