# Warehouse robot, tabular Q(lambda) on what its range sensors see.
import argparse, json, random, time
from collections import defaultdict
import numpy as np

N, E, S, W = 0, 1, 2, 3
DELTA = {N: (0, -1), E: (1, 0), S: (0, 1), W: (-1, 0)}


class Warehouse:
    """Shelves stand in rows, the picker walks between them to fetch one parcel after another."""

    def __init__(self, width=34, height=25, rng=None):
        self.width, self.height = width, height
        self.rng = rng or random.Random(0)
        self.shelves = set()
        self.doors = []
        self._furnish()
        self.free = [(x, y) for x in range(width) for y in range(height)
                     if not self.blocked(x, y)]
        self.new_shift()

    def _furnish(self):
        for y in range(3, self.height - 3, 3):
            gap = self.rng.randrange(4, 8)
            for x in range(2, self.width - 2):
                if x % gap:
                    self.shelves.add((x, y))
                else:
                    self.doors.append((x, y))

    def blocked(self, x, y):
        if x < 0 or y < 0 or x >= self.width or y >= self.height:
            return True
        return (x, y) in self.shelves

    def new_shift(self):
        self.robot = self.rng.choice(self.free)
        self.parcel = self.rng.choice(self.free)
        self.fetched = 0
        self.clock = 0
        return self.sense()

    def look(self, heading, reach=3):
        dx, dy = DELTA[heading]
        x, y = self.robot
        for k in range(1, reach + 1):
            if self.blocked(x + k * dx, y + k * dy):
                return k - 1
        return reach

    def sense(self):
        rx, ry = self.robot
        px, py = self.parcel
        return (self.look(N), self.look(E), self.look(S), self.look(W),
                (px > rx) - (px < rx), (py > ry) - (py < ry), abs(px - rx) + abs(py - ry) < 4)

    def drive(self, heading):
        """Moves one cell.  Gives (what is sensed, pay, is the shift over)."""
        dx, dy = DELTA[heading]
        x, y = self.robot
        before = abs(self.parcel[0] - x) + abs(self.parcel[1] - y)
        self.clock += 1
        pay = -0.05
        if self.blocked(x + dx, y + dy):
            pay -= 0.3
        else:
            self.robot = (x + dx, y + dy)
        after = abs(self.parcel[0] - self.robot[0]) + abs(self.parcel[1] - self.robot[1])
        pay += 0.1 * (before - after)
        if self.robot == self.parcel:
            pay += 2.0
            self.fetched += 1
            while self.parcel == self.robot:
                self.parcel = self.rng.choice(self.free)
        return self.sense(), pay, self.clock >= 300


class WatkinsQ:
    def __init__(self, alpha=0.1, gamma=0.95, lam=0.8, eps=0.15, rng=None):
        self.Q = defaultdict(lambda: [0.0] * 4)
        self.alpha, self.gamma, self.lam, self.eps = alpha, gamma, lam, eps
        self.rng = rng
        self.trace = {}

    def forget(self):
        self.trace.clear()

    def pick(self, s):
        row = self.Q[s]
        best = max(row)
        if self.rng.random() < self.eps:
            a = self.rng.randrange(4)
        else:
            a = self.rng.choice([i for i in range(4) if row[i] == best])
        return a, row[a] == best

    def update(self, s, a, greedy, r, s2, end):
        if not greedy:
            self.trace.clear()
        self.trace[s, a] = 1.0
        goal = r if end else r + self.gamma * max(self.Q[s2])
        delta = self.alpha * (goal - self.Q[s][a])
        dead = []
        for key, e in self.trace.items():
            state, act = key
            self.Q[state][act] += delta * e
            e *= self.gamma * self.lam
            if e < 0.05:
                dead.append(key)
            else:
                self.trace[key] = e
        for key in dead:
            del self.trace[key]


parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=8.0)
parser.add_argument("--seed", type=int, default=0)
opt = parser.parse_args()

rng = random.Random(opt.seed)
house = Warehouse(rng=rng)
brain = WatkinsQ(rng=rng)
catch = []
ticks = base = 0
t0, t1 = time.perf_counter(), None
stop = False
while not stop:
    s = house.new_shift()
    brain.forget()
    over = False
    while not over:
        a, greedy = brain.pick(s)
        s2, pay, over = house.drive(a)
        brain.update(s, a, greedy, pay, s2, over)
        s = s2
        ticks += 1
        if ticks % 50 == 0:
            now = time.perf_counter()
            if t1 is None and now - t0 > 0.8:
                t1, base = now, ticks
            if now - t0 > opt.seconds:
                stop = True
                break
    catch.append(house.fetched)
    if len(catch) % 100 == 0:
        print(f"shift {len(catch)}: {np.mean(catch[-100:]):.2f} parcels, {len(brain.Q)} situations")
print(json.dumps({"env_steps": ticks - base, "seconds": round(now - t1, 3),
                  "env_steps_per_s": round((ticks - base) / (now - t1), 2)}))
