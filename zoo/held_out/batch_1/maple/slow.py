"""
Dyna-Q+ in a windy warehouse: tabular model learning and planning, pure Python.
"""
import argparse
import json
import random
import time

FLOOR = """
S....#.........
..#..#..####...
..#.....#..#.#.
..####..#....#.
.....#..#.####.
.###.#.......#.
...#.####.##.#.
.#.#....#..#...
.#...##.#.##.#.
.#####..#....#G
"""

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


class Warehouse:
    def __init__(self, text, wind=0.1, cap=400):
        self.rows = text.strip().split("\n")
        self.h, self.w = len(self.rows), len(self.rows[0])
        self.wind, self.cap = wind, cap
        for y, row in enumerate(self.rows):
            for x, c in enumerate(row):
                if c == "S":
                    self.start = (y, x)
                elif c == "G":
                    self.goal = (y, x)

    def reset(self):
        self.where, self.clock = self.start, 0
        return self.where

    def step(self, a):
        if random.random() < self.wind:
            a = random.randrange(4)
        y, x = self.where[0] + MOVES[a][0], self.where[1] + MOVES[a][1]
        if 0 <= y < self.h and 0 <= x < self.w and self.rows[y][x] != "#":
            self.where = (y, x)
        self.clock += 1
        at_goal = self.where == self.goal
        return self.where, (1.0 if at_goal else -0.01), at_goal, self.clock >= self.cap


class QTable:
    def __init__(self, alpha, gamma):
        self.alpha, self.gamma = alpha, gamma
        self.rows = {}

    def row(self, s):
        r = self.rows.get(s)
        if r is None:
            r = self.rows[s] = [0.0] * 4
        return r

    def greedy(self, s):
        r = self.row(s)
        best = max(r)
        return random.choice([a for a in range(4) if r[a] == best])

    def update(self, s, a, r, s2, done):
        target = r if done else r + self.gamma * max(self.row(s2))
        row = self.row(s)
        row[a] += self.alpha * (target - row[a])


class WorldModel:
    """Remembers, for every pair seen, the latest outcome and when it was seen."""

    def __init__(self, kappa):
        self.kappa = kappa
        self.outcome = {}
        self.now = 0

    def learn(self, s, a, r, s2, done):
        self.now += 1
        self.outcome[(s, a)] = (r, s2, done, self.now)

    def sample(self):
        s, a = random.choice(list(self.outcome.keys()))
        r, s2, done, when = self.outcome[(s, a)]
        bonus = self.kappa * (self.now - when) ** 0.5
        return s, a, r + bonus, s2, done


class DynaAgent:
    def __init__(self, alpha=0.2, gamma=0.97, epsilon=0.1, kappa=1e-5, n_planning=15):
        self.q = QTable(alpha, gamma)
        self.model = WorldModel(kappa)
        self.epsilon, self.n_planning = epsilon, n_planning

    def choose(self, s):
        if random.random() < self.epsilon:
            return random.randrange(4)
        return self.q.greedy(s)

    def observe(self, s, a, r, s2, done):
        self.q.update(s, a, r, s2, done)
        self.model.learn(s, a, r, s2, done)
        for _ in range(self.n_planning):
            self.q.update(*self.model.sample())


def episode(env, agent):
    s, steps, total = env.reset(), 0, 0.0
    while True:
        a = agent.choose(s)
        s2, r, done, timeout = env.step(a)
        agent.observe(s, a, r, s2, done)
        s = s2
        steps += 1
        total += r
        if done or timeout:
            return steps, total


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=10)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    random.seed(args.seed)

    env, agent = Warehouse(FLOOR), DynaAgent()
    steps = episodes = 0
    returns = []
    t_start = time.perf_counter()
    mark = None
    while time.perf_counter() - t_start < args.seconds:
        n, total = episode(env, agent)
        steps += n
        episodes += 1
        returns.append(total)
        if mark is None and time.perf_counter() - t_start > 1.0:
            mark = (time.perf_counter(), steps)
    dt = time.perf_counter() - mark[0]
    n = steps - mark[1]
    print("episodes", episodes, "mean of last 20 returns", round(sum(returns[-20:]) / 20, 3))
    print(json.dumps({"env_steps": n, "seconds": round(dt, 3), "env_steps_per_s": round(n / dt, 2)}))


if __name__ == "__main__":
    main()
