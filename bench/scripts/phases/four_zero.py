"""Four-in-a-row on a 6x5 board, learned from self-play with tree search (AlphaZero in small)."""
import argparse
import json
import math
import os
import random
import tempfile
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

COLS, ROWS = 6, 5
tick = time.perf_counter_ns


def _lines():
    found = []
    for c in range(COLS):
        for r in range(ROWS):
            for dc, dr in ((1, 0), (0, 1), (1, 1), (1, -1)):
                line = [(c + i * dc, r + i * dr) for i in range(4)]
                if all(0 <= a < COLS and 0 <= b < ROWS for a, b in line):
                    found.append([a * ROWS + b for a, b in line])
    return found


LINES = _lines()
THROUGH = [[ln for ln in LINES if k in ln] for k in range(COLS * ROWS)]


class Board:
    drops = 0

    def __init__(self):
        self.cells = [0] * (COLS * ROWS)
        self.height = [0] * COLS
        self.turn, self.made = 1, 0
        self.result = None  # 1 / -1 / 0 once it is over

    def copy(self):
        b = Board.__new__(Board)
        b.cells, b.height = self.cells[:], self.height[:]
        b.turn, b.made, b.result = self.turn, self.made, self.result
        return b

    def open_columns(self):
        return [c for c in range(COLS) if self.height[c] < ROWS]

    def drop(self, c):
        Board.drops += 1
        k = c * ROWS + self.height[c]
        self.cells[k] = self.turn
        self.height[c] += 1
        self.made += 1
        cells, me = self.cells, self.turn
        for a, b, d, e in THROUGH[k]:
            if cells[a] == me and cells[b] == me and cells[d] == me and cells[e] == me:
                self.result = me
                break
        else:
            if self.made == COLS * ROWS:
                self.result = 0
        self.turn = -me
        return self.result

    def planes(self):
        x = np.array(self.cells, dtype=np.int8).reshape(COLS, ROWS) * self.turn
        return np.stack([x == 1, x == -1]).astype(np.float32)


class PolicyValue(nn.Module):
    def __init__(self, ch=24):
        super().__init__()
        self.a = nn.Conv2d(2, ch, 3, padding=1)
        self.b = nn.Conv2d(ch, ch, 3, padding=1)
        self.p = nn.Linear(ch * COLS * ROWS, COLS)
        self.v1 = nn.Linear(ch * COLS * ROWS, 32)
        self.v2 = nn.Linear(32, 1)

    def forward(self, x):
        h = F.relu(self.b(F.relu(self.a(x)))).flatten(1)
        return self.p(h), torch.tanh(self.v2(F.relu(self.v1(h)))).squeeze(1)


class Node:
    __slots__ = ("prior", "n", "total", "kids")

    def __init__(self, prior):
        self.prior, self.n, self.total, self.kids = prior, 0, 0.0, None


def unfold(node, board, net, x, inside):
    a = tick()
    with torch.no_grad():
        logits, v = net(torch.from_numpy(x)[None])
        p = torch.softmax(logits[0], 0).tolist()
        v = v.item()
    inside[1] += tick() - a
    cols = board.open_columns()
    s = sum(p[c] for c in cols) + 1e-9
    node.kids = {c: Node(p[c] / s) for c in cols}
    return v


def search(board, x, net, sims, inside, noise=None):
    root = Node(1.0)
    unfold(root, board, net, x, inside)
    if noise is not None:
        g = noise.dirichlet([0.8] * len(root.kids))
        for z, kid in zip(g, root.kids.values()):
            kid.prior = 0.75 * kid.prior + 0.25 * z
    for _ in range(sims):
        node, b, path = root, board.copy(), [root]
        while node.kids and b.result is None:
            u, best, pick = 1.4 * math.sqrt(node.n + 1), -1e9, None
            for c, kid in node.kids.items():
                score = (kid.total / kid.n if kid.n else 0.0) + u * kid.prior / (1 + kid.n)
                if score > best:
                    best, pick = score, c
            node = node.kids[pick]
            a = tick()
            b.drop(pick)
            inside[0] += tick() - a
            path.append(node)
        if b.result is None:
            v = unfold(node, b, net, b.planes(), inside)
        else:
            v = b.result * b.turn
        for nd in reversed(path):
            v = -v
            nd.n += 1
            nd.total += v
    visits = np.zeros(COLS, np.float32)
    for c, kid in root.kids.items():
        visits[c] = kid.n
    return visits / visits.sum()


def duel(net, sims, me, rnd):
    """One game against somebody who drops at random."""
    b = Board()
    while b.result is None:
        if b.turn == me:
            b.drop(int(search(b, b.planes(), net, sims, [0, 0]).argmax()))
        else:
            b.drop(rnd.choice(b.open_columns()))
    return b.result * me


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=10)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--sims", type=int, default=24)
    ap.add_argument("--batches", type=int, default=12)
    o = ap.parse_args()
    random.seed(o.seed)
    torch.manual_seed(o.seed)
    torch.set_num_threads(1)
    noise, rnd = np.random.default_rng(o.seed), random.Random(o.seed + 5)
    net = PolicyValue()
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    for _ in range(3):
        sum(y.sum() for y in net(torch.zeros(64, 2, COLS, ROWS))).backward()
    opt.zero_grad()
    memory = deque(maxlen=6000)
    home = tempfile.TemporaryDirectory()
    log = open(os.path.join(home.name, "games.txt"), "w")

    w = [0] * 11
    inside = [0, 0]
    Board.drops = 0
    moves = updates = games = 0
    lengths, tally = deque(maxlen=50), [0, 0, 0]
    lp = lv = torch.zeros(())
    begun = t = tick()
    stop = begun + int(o.seconds * 1e9)

    def lap(i):
        nonlocal t
        n = tick()
        w[i] += n - t
        t = n

    while t < stop:
        board, story = Board(), []
        lap(0)
        while board.result is None and t < stop:
            x = board.planes()
            lap(1)
            pi = search(board, x, net, o.sims, inside, noise)
            col = int(noise.choice(COLS, p=pi / pi.sum())) if board.made < 8 else int(pi.argmax())
            lap(2)
            who = board.turn
            story.append((x, pi, who))
            lap(10)
            board.drop(col)
            moves += 1
            lap(0)
        if board.result is None:
            break
        games += 1
        lengths.append(board.made)
        tally[board.result] += 1
        lap(10)
        for x, pi, who in story:
            z = float(board.result * who)
            memory.append((x, pi, z))
            memory.append((x[:, ::-1].copy(), pi[::-1].copy(), z))
        lap(3)
        for _ in range(o.batches):
            batch = random.sample(memory, min(64, len(memory)))
            xs, pis, zs = zip(*batch)
            X, P, Z = torch.from_numpy(np.stack(xs)), torch.from_numpy(np.stack(pis)), torch.tensor(zs)
            lap(4)
            logits, v = net(X)
            lp = -(P * F.log_softmax(logits, 1)).sum(1).mean()
            lv = F.mse_loss(v, Z)
            loss = lp + lv
            lap(5)
            opt.zero_grad()
            lap(7)
            loss.backward()
            lap(6)
            opt.step()
            lap(7)
            updates += 1
        log.write("game %d length %.2f first %d second %d policy %.3f value %.3f\n" % (
            games, sum(lengths) / len(lengths), tally[1], tally[-1], lp.item(), lv.item()))
        log.flush()
        lap(9)
        if games % 5 == 0:
            duel(net, 12, 1 if games % 10 else -1, rnd)
            lap(8)
    lap(10)
    log.close()
    home.cleanup()
    print("inside the search: rules %.3f s, network %.3f s" % (inside[0] / 1e9, inside[1] / 1e9))
    keys = ["env", "observe", "act", "store", "sample", "forward", "backward", "optimiser", "evaluate", "log", "own"]
    print(json.dumps({"env_steps": moves, "updates": updates, "episodes": games, "seconds": (t - begun) / 1e9,
                      "phases": dict(zip(keys, [v / 1e9 for v in w])), "calls_of_step": Board.drops}))


if __name__ == "__main__":
    main()
