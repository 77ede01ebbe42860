"""Three fishers share a pond; each learns for itself (independent double Q-learning)."""
import argparse
import csv
import json
import os
import tempfile
import time
from abc import ABC, abstractmethod
from collections import deque

import numpy as np
import torch
import torch.nn as nn


class Pond:
    def __init__(self, names, size=14, horizon=120, seed=0):
        self.possible_agents = list(names)
        self.size, self.horizon = size, horizon
        self.rng = np.random.default_rng(seed)
        self.step_calls = 0

    def reset(self):
        n = self.size
        self.agents = list(self.possible_agents)
        self.fish = self.rng.uniform(0.2, 0.9, (n, n))
        self.place = {a: self.rng.integers(0, n, 2) for a in self.agents}
        self.tired = {a: 0.0 for a in self.agents}
        self.t = 0
        return {a: self._see(a) for a in self.agents}, {a: {} for a in self.agents}

    def _see(self, a):
        x, y = self.place[a]
        window = np.pad(self.fish, 2)[x:x + 5, y:y + 5]
        others = [(self.place[b] - self.place[a]) / self.size for b in self.agents if b != a]
        return {"window": window, "others": np.array(others), "self": np.array([x / self.size, y / self.size]),
                "tired": self.tired[a]}

    def step(self, actions):
        self.step_calls += 1
        rewards = {}
        for a in self.rng.permutation(self.agents):
            act = actions[a]
            x, y = self.place[a]
            if act < 4:
                x += (1, -1, 0, 0)[act]
                y += (0, 0, 1, -1)[act]
                self.place[a] = np.clip([x, y], 0, self.size - 1)
                self.tired[a], rewards[a] = min(1.0, self.tired[a] + 0.02), -0.01
            elif act == 4:
                share = 0.6 * self.fish[x, y] * (1 - 0.5 * self.tired[a])
                self.fish[x, y] -= share
                self.tired[a], rewards[a] = min(1.0, self.tired[a] + 0.06), float(share)
            else:
                self.tired[a], rewards[a] = 0.7 * self.tired[a], 0.0
        f = self.fish
        for _ in range(3):
            p = np.pad(f, 1, mode="edge")
            drift = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * f
            f = np.clip(f + 0.05 * drift + 0.012 * f * (1 - f), 0, 1)
        self.fish = f
        self.t += 1
        late = self.t >= self.horizon
        seen = {a: self._see(a) for a in self.agents}
        return seen, rewards, {a: False for a in self.agents}, {a: late for a in self.agents}, {}


class Hours:
    def __init__(self, n):
        self.w, self.n = None, n

    def open(self):
        self.w = [0] * self.n
        self.a = self.z = time.perf_counter_ns()

    def to(self, i):
        b = time.perf_counter_ns()
        self.w[i] += b - self.z
        self.z = b


class Learner(ABC):
    """Keeps its eyes (last glances) and its own memory."""

    def __init__(self, width, n_actions, hours, seed):
        self.width, self.n_actions, self.hours = width, n_actions, hours
        self.rng = np.random.default_rng(seed)
        self.glances = deque(maxlen=2)
        self.income = 0.0

    def wake(self, raw):
        self.glances.clear()
        self.glances.append(self.flatten(raw))
        return self.look(raw)

    @staticmethod
    def flatten(raw):
        return np.concatenate([raw["window"].ravel(), raw["others"].ravel(), raw["self"], [raw["tired"]]])

    def look(self, raw):
        self.glances.append(self.flatten(raw))
        return np.concatenate(self.glances).astype(np.float32)

    @abstractmethod
    def pick(self, x, eps): ...

    @abstractmethod
    def study(self): ...


class DoubleQ(Learner):
    def __init__(self, width, n_actions, hours, seed, room=15000, batch=48):
        super().__init__(width, n_actions, hours, seed)
        self.live, self.slow = (nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                                              nn.Linear(64, n_actions)) for _ in range(2))
        self.slow.load_state_dict(self.live.state_dict())
        self.opt = torch.optim.Adam(self.live.parameters(), 1e-3)
        self.mem = {"x": np.zeros((room, width), np.float32), "y": np.zeros((room, width), np.float32),
                    "a": np.zeros(room, np.int64), "r": np.zeros(room, np.float32)}
        self.room, self.batch, self.k = room, batch, 0

    def pick(self, x, eps):
        if self.rng.random() < eps:
            return int(self.rng.integers(self.n_actions))
        with torch.no_grad():
            return int(self.live(torch.from_numpy(x)).argmax())

    def keep(self, x, a, r, y):
        i = self.k % self.room
        m = self.mem
        m["x"][i], m["a"][i], m["r"][i], m["y"][i] = x, a, r, y
        self.k += 1

    def study(self):
        to = self.hours.to
        i = self.rng.integers(0, min(self.k, self.room), self.batch)
        x, a, r, y = (torch.from_numpy(self.mem[k][i]) for k in "xary")
        to(4)
        with torch.no_grad():
            nxt = self.slow(y).gather(1, self.live(y).argmax(1, keepdim=True))[:, 0]
        q = self.live(x).gather(1, a[:, None])[:, 0]
        loss = nn.functional.smooth_l1_loss(q, r + 0.95 * nxt)
        to(5)
        self.opt.zero_grad()
        to(7)
        loss.backward()
        to(6)
        self.opt.step()
        to(7)
        for s, l in zip(self.slow.state_dict().values(), self.live.state_dict().values()):
            s.copy_(0.99 * s + 0.01 * l)
        to(8)
        return loss


def contest(pond, fishers):
    raw, _ = pond.reset()
    backs = {n: list(f.glances) for n, f in fishers.items()}
    xs = {n: f.wake(raw[n]) for n, f in fishers.items()}
    over, catch = False, dict.fromkeys(fishers, 0.0)
    while not over:
        raw, rew, _, late, _ = pond.step({n: f.pick(xs[n], 0.0) for n, f in fishers.items()})
        xs = {n: f.look(raw[n]) for n, f in fishers.items()}
        for n in fishers:
            catch[n] += rew[n]
        over = any(late.values())
    for n, f in fishers.items():
        f.glances.extend(backs[n])
    return catch


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=10.0)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    NAMES = ["ada", "bo", "cy"]
    WIDTH = 2 * (25 + 2 * (len(NAMES) - 1) + 2 + 1)
    pond, side_pond = Pond(NAMES, seed=args.seed), Pond(NAMES, horizon=60, seed=args.seed + 99)
    hours = Hours(12)
    fishers = {n: DoubleQ(WIDTH, 6, hours, args.seed + i) for i, n in enumerate(NAMES)}
    hours.open()
    for i in range(3):
        z = DoubleQ(WIDTH, 6, hours, i)
        z.keep(np.zeros(WIDTH), 0, 0.0, np.zeros(WIDTH))
        z.study()
    folder = tempfile.TemporaryDirectory()
    file = open(os.path.join(folder.name, "catch.csv"), "w", newline="")
    sheet = csv.DictWriter(file, ["season", "step", "eps", "stock", *NAMES])
    sheet.writeheader()
    step, updates, seasons, fair = 0, 0, 0, []

    hours.open()
    to, stop = hours.to, hours.a + args.seconds * 1e9
    while hours.z < stop:
        raw, _ = pond.reset()
        to(0)
        xs = {n: f.wake(raw[n]) for n, f in fishers.items()}
        to(1)
        over = False
        while not over and hours.z < stop:
            eps = max(0.05, 1 - step / 4000)
            to(11)
            acts = {n: f.pick(xs[n], eps) for n, f in fishers.items()}
            to(2)
            raw, rew, gone, late, _ = pond.step(acts)
            to(0)
            ys = {n: f.look(raw[n]) for n, f in fishers.items()}
            to(1)
            step += 1
            mean = sum(rew.values()) / len(rew)
            envy = {n: rew[n] - 0.1 * abs(rew[n] - mean) for n in NAMES}
            for n, f in fishers.items():
                f.income += rew[n]
            to(11)
            for n, f in fishers.items():
                f.keep(xs[n], acts[n], envy[n], ys[n])
            to(3)
            xs = ys
            over = any(late.values())
            if step > 100 and step % 6 == 0:
                to(11)
                for f in fishers.values():
                    f.study()
                    updates += 1
        if not over:
            break
        seasons += 1
        got = {n: f.income for n, f in fishers.items()}
        fair.append(min(got.values()) / (max(got.values()) + 1e-9))
        for f in fishers.values():
            f.income = 0.0
        to(11)
        sheet.writerow({"season": seasons, "step": step, "eps": eps, "stock": float(pond.fish.mean()), **got})
        file.flush()
        to(9)
        if seasons % 5 == 0:
            contest(side_pond, fishers)
            to(10)
    to(11)
    file.close()
    folder.cleanup()
    words = ["env", "observe", "act", "store", "sample", "forward", "backward", "optimiser", "target", "log",
             "evaluate", "own"]
    print(json.dumps({"env_steps": step, "updates": updates, "episodes": seasons,
                      "seconds": (hours.z - hours.a) / 1e9,
                      "phases": {k: v / 1e9 for k, v in zip(words, hours.w)},
                      "calls_of_step": pond.step_calls + side_pond.step_calls}))
