"""Greenhouse: a plant model lives in its own process, the grower (this process) talks to it through a pipe."""
import argparse
import json
import multiprocessing as mp
import random
import time

import numpy as np
import torch
from torch import nn

# (heater, vent, lamp)
SETTINGS = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1)]


# ---- the house ---------------------------------------------------------------
class House:
    ZONES = 8

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.mix = np.eye(self.ZONES) * 0.9 + 0.1 / self.ZONES

    def new_day(self):
        self.temp = self.rng.uniform(10, 16, self.ZONES)
        self.moist = self.rng.uniform(0.4, 0.7, self.ZONES)
        self.mass = 1.0
        self.hour = 0.0
        return self.report(0.0, False)

    def report(self, growth, night):
        return {
            "temperature": self.temp.copy(),
            "moisture": self.moist.copy(),
            "clock": (np.sin(self.hour * np.pi / 12), np.cos(self.hour * np.pi / 12)),
            "growth": growth,
            "day_over": night,
        }

    def advance(self, heater, vent, lamp):
        sun = max(0.0, np.sin((self.hour - 6) * np.pi / 12))
        for _ in range(4):
            outside = 8 + 8 * sun + self.rng.normal(0, 0.5)
            leak = (0.02 + 0.15 * vent) * (outside - self.temp)
            self.temp = self.mix @ (self.temp + leak + 0.5 * heater + 0.1 * lamp + 0.3 * sun)
            self.moist = np.clip(self.moist - 0.002 - 0.01 * vent + self.rng.normal(0, 0.002, self.ZONES), 0, 1)
        comfort = np.exp(-(((self.temp - 21) / 5) ** 2)) * np.minimum(1, 2 * self.moist)
        growth = float(((0.2 + 0.8 * min(1.0, sun + 0.5 * lamp)) * comfort).mean())
        self.mass += 0.01 * growth
        self.hour += 0.25
        cost = 0.15 * heater + 0.1 * lamp
        return self.report(growth - cost, self.hour >= 24)


def house_process(pipe, seed):
    house = House(seed)
    while True:
        order = pipe.recv()
        if order is None:
            return
        if order == "dawn":
            pipe.send(house.new_day())
        else:
            pipe.send(house.advance(*order))


class Plant:
    """Handle on the house in the other process: tell() something, then hear() what came of it."""

    def __init__(self, seed):
        self.wire, end = mp.Pipe()
        self.proc = mp.Process(target=house_process, args=(end, seed), daemon=True)
        self.proc.start()
        end.close()

    def tell(self, order):
        self.wire.send(order)

    def hear(self):
        while not self.wire.poll():
            time.sleep(0.001)
        return self.wire.recv()

    def shut(self):
        self.wire.send(None)
        self.proc.join(timeout=2)


# ---- the grower --------------------------------------------------------------
def features(msg):
    return np.concatenate([(msg["temperature"] - 18) / 8, msg["moisture"] - 0.5, msg["clock"]]).astype(np.float32)


class Grower:
    def __init__(self, n_in, rng):
        self.rng = rng
        self.net = nn.Sequential(nn.Linear(n_in, 96), nn.ReLU(), nn.Linear(96, len(SETTINGS)))
        self.slow_net = nn.Sequential(nn.Linear(n_in, 96), nn.ReLU(), nn.Linear(96, len(SETTINGS)))
        self.slow_net.load_state_dict(self.net.state_dict())
        self.opt = torch.optim.RMSprop(self.net.parameters(), lr=5e-4)
        cap = 20_000
        self.X = torch.zeros(cap, n_in)
        self.Y = torch.zeros(cap, n_in)
        self.U = torch.zeros(cap, dtype=torch.long)
        self.G = torch.zeros(cap)
        self.cap, self.count, self.learned = cap, 0, 0

    def decide(self, x):
        if self.rng.random() < max(0.05, 1 - self.count / 3000):
            return self.rng.randrange(len(SETTINGS))
        with torch.no_grad():
            return int(self.net(torch.from_numpy(x)).argmax())

    def keep(self, x, u, g, y):
        i = self.count % self.cap
        self.X[i] = torch.from_numpy(x)
        self.Y[i] = torch.from_numpy(y)
        self.U[i], self.G[i] = u, g
        self.count += 1

    def study(self):
        i = torch.randint(min(self.count, self.cap), (64,))
        with torch.no_grad():
            goal = self.G[i] + 0.95 * self.slow_net(self.Y[i]).max(1).values
        q = self.net(self.X[i]).gather(1, self.U[i, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(q, goal)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.learned += 1
        if self.learned % 200 == 0:
            self.slow_net.load_state_dict(self.net.state_dict())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=8.0)
    ap.add_argument("--seed", type=int, default=0)
    ns = ap.parse_args()
    torch.manual_seed(ns.seed)
    torch.set_num_threads(1)
    plant = Plant(ns.seed)
    grower = Grower(2 * House.ZONES + 2, random.Random(ns.seed))

    quarters, days, yields, today = 0, 0, [], 0.0
    plant.tell("dawn")
    x = features(plant.hear())
    t0 = time.perf_counter()
    warm = None
    while True:
        u = grower.decide(x)
        plant.tell(SETTINGS[u])
        msg = plant.hear()
        y = features(msg)
        grower.keep(x, u, msg["growth"], y)
        today += msg["growth"]
        x = y
        quarters += 1
        if quarters >= 200 and quarters % 2 == 0:
            grower.study()
        if msg["day_over"]:
            days += 1
            yields.append(today)
            today = 0.0
            if days % 20 == 0:
                print("day %d, yield of the last 20: %.2f" % (days, np.mean(yields[-20:])))
            plant.tell("dawn")
            x = features(plant.hear())
        now = time.perf_counter()
        if warm is None and now - t0 >= 1.0:
            warm = (now, quarters)
        if now - t0 >= ns.seconds:
            break
    plant.shut()
    n, s = quarters - warm[1], now - warm[0]
    print(json.dumps({"env_steps": n, "seconds": round(s, 3), "env_steps_per_s": round(n / s, 1), "updates": grower.learned}))


if __name__ == "__main__":
    main()
