"""Dyna-Q in mazes that get larger (curriculum), with a reward for getting nearer."""
import argparse
import json
import random
import time
from collections import deque

DIRS = ((-1, 0), (0, 1), (1, 0), (0, -1))


# ------------------------------------------------------------------ mazes
def carve(n, rng, loops):
    """A maze of (2n+1)^2 cells; returns the set of open cells."""
    size = 2 * n + 1
    free = {(1, 1)}
    stack = [(1, 1)]
    while stack:
        i, j = stack[-1]
        options = []
        for di, dj in DIRS:
            a, b = i + 2 * di, j + 2 * dj
            if 0 < a < size and 0 < b < size and (a, b) not in free:
                options.append((di, dj))
        if not options:
            stack.pop()
            continue
        di, dj = rng.choice(options)
        free.add((i + di, j + dj))
        free.add((i + 2 * di, j + 2 * dj))
        stack.append((i + 2 * di, j + 2 * dj))
    inner = [(i, j) for i in range(1, size - 1) for j in range(1, size - 1) if (i, j) not in free]
    free.update(rng.sample(inner, min(loops, len(inner))))
    return free


def walk_length(free, src, dst):
    """Number of moves from src to dst."""
    if src == dst:
        return 0
    frontier = deque([(src, 0)])
    seen = {src}
    while frontier:
        (i, j), d = frontier.popleft()
        for di, dj in DIRS:
            nxt = (i + di, j + dj)
            if nxt in free and nxt not in seen:
                if nxt == dst:
                    return d + 1
                seen.add(nxt)
                frontier.append((nxt, d + 1))
    return len(free)


class Labyrinth:
    def __init__(self, n, rng):
        self.rng = rng
        self.load(n)

    def load(self, n):
        self.n = n
        self.free = carve(n, self.rng, loops=n)
        self.cells = sorted(self.free)
        self.goal = (2 * n - 1, 2 * n - 1)

    def potential(self, cell):
        return -0.1 * walk_length(self.free, cell, self.goal)

    def begin(self):
        self.at = self.rng.choice(self.cells[: len(self.cells) // 2])
        self.moves = 0
        self.phi = self.potential(self.at)
        return self.at

    def go(self, k):
        """Walks one cell; the new cell is in .at afterwards. Returns the reward."""
        if self.rng.random() < 0.05:
            k = self.rng.randrange(4)
        cell = (self.at[0] + DIRS[k][0], self.at[1] + DIRS[k][1])
        if cell in self.free:
            self.at = cell
        self.moves += 1
        phi = self.potential(self.at)
        gain = (1.0 if self.at == self.goal else -0.01) + phi - self.phi
        self.phi = phi
        return gain

    @property
    def solved(self):
        return self.at == self.goal

    @property
    def over(self):
        return self.solved or self.moves >= 40 * self.n


# ------------------------------------------------------------------ learner
class DynaQ:
    def __init__(self, rng, gamma, alpha=0.3, eps=0.1, planning=12):
        self.rng, self.gamma, self.alpha, self.eps, self.planning = rng, gamma, alpha, eps, planning
        self.forget()

    def forget(self):
        self.Q = {}
        self.model = {}
        self.known = []

    def row(self, s):
        q = self.Q.get(s)
        if q is None:
            q = self.Q[s] = [0.0] * 4
        return q

    def pick(self, s):
        if self.rng.random() < self.eps:
            return self.rng.randrange(4)
        q = self.row(s)
        return q.index(max(q))

    def backup(self, s, a, r, s2, end):
        q = self.row(s)
        target = r if end else r + self.gamma * max(self.row(s2))
        q[a] += self.alpha * (target - q[a])

    def observe(self, s, a, r, s2, end):
        self.backup(s, a, r, s2, end)
        if (s, a) not in self.model:
            self.known.append((s, a))
        self.model[(s, a)] = (r, s2, end)
        n = len(self.known)
        for _ in range(self.planning):
            ps, pa = self.known[int(self.rng.random() * n)]
            self.backup(ps, pa, *self.model[(ps, pa)])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=8.0)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--episodes-per-level", type=int, default=60)
    args = ap.parse_args()
    rng = random.Random(args.seed)
    gamma = 0.99
    world = Labyrinth(4, rng)
    agent = DynaQ(rng, gamma)
    steps = episodes = 0
    wins = deque(maxlen=20)
    first = None
    t0 = time.perf_counter()
    running = True
    while running:
        s = world.begin()
        while not world.over:
            a = agent.pick(s)
            r = world.go(a)
            s2 = world.at
            agent.observe(s, a, r, s2, world.solved)
            s = s2
            steps += 1
            t = time.perf_counter()
            if first is None and t - t0 > 0.5:
                first = (t, steps)
            if t - t0 > args.seconds:
                running = False
                break
        wins.append(world.solved)
        episodes += 1
        if episodes % args.episodes_per_level == 0:
            print(f"level {world.n}: solved {sum(wins)}/{len(wins)} of the last mazes, {steps} steps so far")
            world.load(min(world.n + 1, 7))
            agent.forget()
    n, sec = steps - first[1], t - first[0]
    print(json.dumps({"env_steps": n, "seconds": round(sec, 3), "env_steps_per_s": round(n / sec, 1)}))


if __name__ == "__main__":
    main()
