"""Advantage actor-critic, one step at a time, for a simulated glasshouse.

The gardener heats, vents, waters or shades; plants along the house grow when
their own air and soil are right.  `tend` gives back everything in one dict.
"""
import argparse
import json
import math
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn

CHORES = ["rest", "heat", "vent", "water", "shade", "heat+water", "vent+shade"]


class Glasshouse:
    ROWS = 48

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.visits = 0

    def sow(self):
        g = self.rng
        self.hour = 0
        self.cloud = g.uniform(0, 1)
        self.air = 14 + 2 * g.standard_normal(self.ROWS)
        self.soil = np.clip(0.5 + 0.1 * g.standard_normal(self.ROWS), 0, 1)
        self.leaf = np.full(self.ROWS, 0.2)
        self.outside = 8 + 4 * g.standard_normal()
        return self._report(0.0, False)

    def _report(self, profit, over):
        return {"air": self.air.copy(), "soil": self.soil.copy(), "leaf": self.leaf.copy(),
                "hour": self.hour, "cloud": self.cloud, "outside": self.outside,
                "profit": profit, "over": over, "withered": bool(self.leaf.mean() < 0.08)}

    def tend(self, chore):
        self.visits += 1
        what = CHORES[chore]
        g = self.rng
        self.cloud = min(1.0, max(0.0, self.cloud + 0.15 * g.standard_normal()))
        sun = max(0.0, math.sin((self.hour % 24 - 6) / 12 * math.pi)) * (1 - 0.7 * self.cloud)
        if "shade" in what:
            sun *= 0.4
        leak = 0.12 if "vent" in what else 0.02
        for _ in range(5):
            a = self.air
            flow = np.empty_like(a)
            flow[1:-1] = a[2:] - 2 * a[1:-1] + a[:-2]
            flow[0], flow[-1] = a[1] - a[0], a[-2] - a[-1]
            a = a + 0.2 * flow + leak * (self.outside - a) + 0.5 * sun
            if "heat" in what:
                a[:8] += 2.0
                a[-8:] += 2.0
            self.air = a
            self.soil = np.clip(self.soil - 0.0012 * np.maximum(a - 5, 0) * (0.5 + sun), 0, 1)
        if "water" in what:
            self.soil = np.clip(self.soil + 0.12, 0, 1)
        fit = np.exp(-((self.air - 22) / 7) ** 2) * np.exp(-((self.soil - 0.55) / 0.25) ** 2)
        growth = 0.05 * fit * (0.2 + sun) - 0.002 * (fit < 0.15)
        self.leaf = np.clip(self.leaf + growth, 0, 1)
        cost = 0.04 * ("heat" in what) + 0.02 * ("water" in what)
        self.hour += 1
        self.outside += 0.3 * g.standard_normal() + 0.02 * (9 - self.outside)
        full = self.hour >= 24 * 6 or self.leaf.mean() < 0.08
        return self._report(float(40 * growth.mean() - cost), full)


def reading(d):
    """What the gardener sees: averages of beds, clock, weather."""
    beds = [(d["air"].reshape(8, -1).mean(1) - 20) / 10, d["soil"].reshape(8, -1).mean(1) * 2 - 1,
            d["leaf"].reshape(8, -1).mean(1)]
    ang = d["hour"] / 24 * 2 * math.pi
    rest = [math.sin(ang), math.cos(ang), d["cloud"], (d["outside"] - 8) / 8]
    return torch.from_numpy(np.concatenate(beds + [rest]).astype(np.float32)).unsqueeze(0)


class Gardener(nn.Module):
    def __init__(self, n_in, n_chores, width=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(n_in, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.habit = nn.Linear(width, n_chores)
        self.worth = nn.Linear(width, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.habit(h), self.worth(h)


def season(house, gardener):
    """A whole season with the best-looking chores only."""
    d, total = house.sow(), 0.0
    while not d["over"]:
        with torch.no_grad():
            chore = gardener(reading(d))[0].argmax().item()
        d = house.tend(chore)
        total += d["profit"]
    return total


def run(seconds, seed):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    house, show_house = Glasshouse(seed), Glasshouse(seed + 1)
    gardener = Gardener(28, len(CHORES))
    tool = torch.optim.RMSprop(gardener.parameters(), lr=5e-4, alpha=0.99, eps=1e-5)
    sum(o.sum() for o in gardener(torch.zeros(1, 28))).backward()
    tool.zero_grad()
    box = tempfile.TemporaryDirectory()
    diary = open(os.path.join(box.name, "diary.jsonl"), "w")

    w = [0] * 9
    clock = time.perf_counter_ns
    first = t = clock()
    until = first + int(seconds * 1e9)
    visits = seasons = 0
    profit, average, worst = 0.0, None, 0.0

    d = house.sow()
    u = clock(); w[0] += u - t; t = u
    x = reading(d)
    u = clock(); w[1] += u - t; t = u
    while t < until:
        habit, worth = gardener(x)
        logp = torch.log_softmax(habit, -1)
        chore = torch.multinomial(logp.detach().exp(), 1).item()
        u = clock(); w[2] += u - t; t = u

        d = house.tend(chore)
        u = clock(); w[0] += u - t; t = u

        x_next = reading(d)
        u = clock(); w[1] += u - t; t = u

        visits += 1
        profit += d["profit"]
        gain = max(-2.0, min(2.0, d["profit"])) - (1.0 if d["withered"] else 0.0)
        alive = 0.0 if d["withered"] else 1.0
        weight = 0.02 * max(0.1, 1 - visits / 20000)
        u = clock(); w[8] += u - t; t = u

        with torch.no_grad():
            ahead = gardener(x_next)[1]
        miss = gain + 0.98 * alive * ahead - worth
        spread = -(logp.exp() * logp).sum()
        loss = (-logp[0, chore] * miss.detach() + 0.5 * miss.pow(2)).sum() - weight * spread
        u = clock(); w[3] += u - t; t = u

        tool.zero_grad()
        u = clock(); w[5] += u - t; t = u
        loss.backward()
        u = clock(); w[4] += u - t; t = u
        nn.utils.clip_grad_norm_(gardener.parameters(), 1.0)
        tool.step()
        u = clock(); w[5] += u - t; t = u

        x = x_next
        if visits % 10 == 0:
            diary.write(json.dumps({"visit": visits, "loss": loss.item(), "spread": spread.item(),
                                    "worth": worth.item(), "air": float(d["air"].mean()), "season": seasons}) + "\n")
            diary.flush()
            u = clock(); w[7] += u - t; t = u
        if d["over"]:
            seasons += 1
            average = profit if average is None else 0.95 * average + 0.05 * profit
            worst = min(worst, profit)
            profit = 0.0
            u = clock(); w[8] += u - t; t = u
            d = house.sow()
            u = clock(); w[0] += u - t; t = u
            x = reading(d)
            u = clock(); w[1] += u - t; t = u
            if seasons % 8 == 0:
                best = season(show_house, gardener)
                u = clock(); w[6] += u - t; t = u
                diary.write(json.dumps({"season": seasons, "average": average, "show": best}) + "\n")
                u = clock(); w[7] += u - t; t = u
    diary.close()
    box.cleanup()
    words = ["env", "observe", "act", "forward", "backward", "optimiser", "evaluate", "log", "own"]
    return {"env_steps": visits, "updates": visits, "episodes": seasons, "seconds": (t - first) / 1e9,
            "phases": {k: v / 1e9 for k, v in zip(words, w)}, "calls_of_step": house.visits + show_house.visits}


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    cli.add_argument("--seconds", type=float, default=10)
    cli.add_argument("--seed", type=int, default=0)
    opts = cli.parse_args()
    print(json.dumps(run(opts.seconds, opts.seed)))
