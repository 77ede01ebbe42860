"""Commuters in a road network, each one an Exp3 learner (a repeated congestion game).

Every morning all M commuters choose one of K routes at once; the travel time of a route
grows with the number of cars on it.  Nobody sees anything but the own travel time.
"""
import argparse
import json
import time
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Roads:
    base: np.ndarray
    capacity: np.ndarray
    rng: np.random.Generator
    weather: float = 1.0
    log: list = field(default_factory=list)

    def rush_hour(self, picks):
        load = np.bincount(picks, minlength=len(self.base))
        self.weather = 0.95 * self.weather + 0.05 * self.rng.uniform(0.8, 1.2)
        minutes = self.weather * self.base * (1.0 + 0.15 * (load / self.capacity) ** 4)
        return load, minutes

    @property
    def worst(self):
        return float(self.base.max() * 3.0)


def sample_from(weights):
    """One index, drawn with probability proportional to the weights."""
    p = weights / weights.sum()
    return min(int(p.cumsum().searchsorted(np.random.random(), side="right")), len(p) - 1), p


class Commuter:
    def __init__(self, K, eta, explore, patience):
        self.K, self.eta, self.explore = K, eta, explore
        self.patience = patience
        self.S = np.zeros(K)
        self.last = None
        self.mean_minutes = 0.0

    def leave_home(self):
        w = np.exp(self.eta * (self.S - self.S.max()))
        w = (1.0 - self.explore) * w / w.sum() + self.explore / self.K
        route, p = sample_from(w)
        self.last = (route, p[route])
        return route

    def arrive(self, minutes, worst):
        route, prob = self.last
        gain = 1.0 - min(minutes * self.patience / worst, 1.0)
        self.S[route] += gain / prob
        self.mean_minutes += 0.02 * (minutes - self.mean_minutes)


class City:
    def __init__(self, M, K, seed):
        rng = np.random.default_rng(seed)
        self.roads = Roads(rng.uniform(12, 25, K), rng.uniform(4, 10, K), rng)
        self.people = [Commuter(K, eta=rng.uniform(0.02, 0.06), explore=0.05,
                                patience=rng.uniform(0.8, 1.2)) for _ in range(M)]
        self.K = K
        self.days = 0
        self.average_load = np.zeros(K)

    def day(self):
        picks = [c.leave_home() for c in self.people]
        load, minutes = self.roads.rush_hour(picks)
        worst = self.roads.worst
        for c, k in zip(self.people, picks):
            c.arrive(minutes[k], worst)
        self.days += 1
        self.average_load += (load - self.average_load) / self.days
        return minutes, load

    def regret(self, minutes, load):
        """How many minutes one could save by the best single change of route."""
        best = minutes.min()
        return float((minutes * load).sum() / load.sum() - best)


def simulate(seconds, seed, M=40, K=7):
    np.random.seed(seed)
    city = City(M, K, seed)
    smooth = None
    start = time.perf_counter()
    warm, offset = None, 0
    while True:
        minutes, load = city.day()
        r = city.regret(minutes, load)
        smooth = r if smooth is None else 0.99 * smooth + 0.01 * r
        if city.days % 500 == 0:
            print(f"day {city.days}: regret {smooth:.2f} min, "
                  f"mean trip {np.mean([c.mean_minutes for c in city.people]):.1f} min")
        t = time.perf_counter()
        if warm is None and t - start > 0.7:
            warm, offset = t, city.days
        if t - start > seconds:
            return city.days - offset, t - warm


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--seconds", type=float, default=8.0)
    cli.add_argument("--seed", type=int, default=0)
    ns = cli.parse_args()
    n, s = simulate(ns.seconds, ns.seed)
    print(json.dumps({"env_steps": n, "seconds": round(s, 3), "env_steps_per_s": round(n / s, 2)}))
