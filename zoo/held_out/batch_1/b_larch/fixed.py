"""Three traders with different tempers share one market; each learns by itself (independent actor-critic, linear)."""
import argparse
import json
import math
import time

import numpy as np

WINDOW = 24
ORDERS = (-1, 0, 1)  # sell, wait, buy


class Exchange:
    """open_day() and clear() give {trader: view}, clear() also {trader: profit} and whether the day is over."""

    def __init__(self, traders, seed, day_length=400, tape_length=2_000_000):
        self.traders = traders
        self.rng = np.random.default_rng(seed)
        self.day_length = day_length
        self.prices = np.zeros(tape_length)
        self.volumes = np.zeros(tape_length)
        self.now = WINDOW
        self.prices[: self.now + 1] = 100.0 + 0.01 * np.arange(WINDOW + 1)
        self.trend = 0.0

    def open_day(self):
        self.tick = 0
        self.position = dict.fromkeys(self.traders, 0)
        return self.views()

    def returns(self):
        """Log-returns of the last WINDOW ticks, in percent."""
        prices = self.prices[self.now - WINDOW : self.now + 1]
        return 100.0 * np.diff(np.log(prices))

    def views(self):
        public = np.concatenate([self.returns(), self.volumes[self.now - 3 : self.now + 1], [0.0, 1.0]])
        seen = {}
        for name in self.traders:
            seen[name] = public.copy()
            seen[name][-2] = self.position[name] / 3.0
        return seen

    def clear(self, orders):
        demand = 0
        for name, o in orders.items():
            new = min(3, max(-3, self.position[name] + o))
            demand += new - self.position[name]
            self.position[name] = new
        old = float(self.prices[self.now])
        self.trend = 0.97 * self.trend + 0.0006 * self.rng.standard_normal()
        pull = 0.002 * (math.log(100.0) - math.log(old))
        new = old * math.exp(self.trend + pull + 0.0004 * demand + 0.001 * self.rng.standard_normal())
        self.now += 1
        self.prices[self.now] = new
        self.volumes[self.now] = abs(demand) / 3.0
        self.tick += 1
        change = 100.0 * (new / old - 1.0)
        profit = {name: self.position[name] * change - 0.02 * abs(orders[name]) for name in self.traders}
        return self.views(), profit, self.tick >= self.day_length


class Trader:
    def __init__(self, n_in, rng, temper, lr=0.002, gamma=0.9, lam=0.8):
        self.rng, self.temper, self.lr, self.gamma, self.lam = rng, temper, lr, gamma, lam
        self.W = np.zeros((len(ORDERS), n_in))
        self.v = np.zeros(n_in)
        self.bell()

    def bell(self):
        self.zW = np.zeros_like(self.W)
        self.zv = np.zeros_like(self.v)

    def decide(self, x):
        z = self.W @ x / self.temper
        e = np.exp(z - z.max())
        self.p = e / e.sum()
        u = self.rng.random()
        p0, p1, _ = self.p.tolist()
        self.k = 0 if u < p0 else 1 if u < p0 + p1 else 2
        return ORDERS[self.k]

    def settle(self, x, r, y, over):
        delta = r + (0.0 if over else self.gamma * float(self.v @ y)) - float(self.v @ x)
        grad = -self.p
        grad[self.k] += 1.0
        decay = self.gamma * self.lam
        self.zv *= decay
        self.zv += x
        self.zW *= decay
        self.zW += np.outer(grad, x)
        step = self.lr * max(-2.0, min(2.0, delta))
        self.v += step * self.zv
        self.W += step * self.zW


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=8.0)
    ap.add_argument("--seed", type=int, default=0)
    o = ap.parse_args()
    rng = np.random.default_rng(o.seed + 1)
    tempers = {"bold": 0.5, "calm": 1.0, "shy": 2.0}
    market = Exchange(list(tempers), o.seed)
    views = market.open_day()
    n_in = len(views["calm"])
    people = {name: Trader(n_in, rng, t) for name, t in tempers.items()}
    ticks, days = 0, 0
    purse = dict.fromkeys(people, 0.0)
    begin = time.perf_counter()
    warm = None
    while True:
        orders = {name: p.decide(views[name]) for name, p in people.items()}
        after, profit, over = market.clear(orders)
        for name, p in people.items():
            p.settle(views[name], profit[name], after[name], over)
            purse[name] += profit[name]
        views = after
        ticks += 1
        if over:
            days += 1
            views = market.open_day()
            for p in people.values():
                p.bell()
            if days % 10 == 0:
                print("day", days, {k: round(v / 10, 2) for k, v in purse.items()})
                purse = dict.fromkeys(people, 0.0)
        now = time.perf_counter()
        if warm is None and now - begin > 0.5:
            warm = (now, ticks)
        if now - begin > o.seconds:
            break
    n, s = ticks - warm[1], now - warm[0]
    print(json.dumps({"env_steps": n, "seconds": round(s, 3), "env_steps_per_s": round(n / s, 1)}))


if __name__ == "__main__":
    main()
