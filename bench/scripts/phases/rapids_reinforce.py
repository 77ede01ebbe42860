# REINFORCE on a canoe in rapids.  Everything is kept in lists until enough
# trips have been made; every few trips the last one is drawn as a picture.
import argparse
import json
import os
import random
import tempfile
import time

import numpy as np
import torch
from PIL import Image, ImageDraw

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=10.0)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--trips-per-update", type=int, default=4)
parser.add_argument("--draw-every", type=int, default=3)
FLAGS = parser.parse_args()

LENGTH, WIDTH = 40.0, 10.0


class Rapids:
    """A river with whirls and rocks; paddle left, right, hard, or drift."""

    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)
        self.n_steps = 0

    def reset(self):
        r = self.rng
        self.whirls = np.stack([r.uniform(3, LENGTH, 14), r.uniform(0, WIDTH, 14)], 1)
        self.spin = r.uniform(-1.5, 1.5, 14)
        self.rocks = np.stack([r.uniform(6, LENGTH - 4, 9), r.uniform(1, WIDTH - 1, 9)], 1)
        self.pos = np.array([0.5, WIDTH / 2 + r.uniform(-1, 1)])
        self.vel = np.zeros(2)
        self.time = 0
        return self._state()

    def _water(self, p):
        d = p - self.whirls
        k = self.spin * np.exp(-(d * d).sum(1) / 3.0)
        swirl = np.array([-(k * d[:, 1]).sum(), (k * d[:, 0]).sum()])
        mid = 1.4 * (1 - ((p[1] - WIDTH / 2) / (0.62 * WIDTH)) ** 2)
        return swirl + np.array([mid, 0.0])

    def _state(self):
        return {"pos": self.pos, "vel": self.vel, "rocks": self.rocks, "water": self._water(self.pos)}

    def step(self, a):
        self.n_steps += 1
        push = ((0.0, 0.0), (0.0, -2.0), (0.0, 2.0), (1.5, 0.0))[a]
        start = self.pos[0]
        for _ in range(4):
            self.vel = self.vel + 0.05 * (1.8 * (self._water(self.pos) - self.vel) + np.array(push))
            self.pos = self.pos + 0.1 * self.vel
        self.time += 1
        crash = bool((((self.rocks - self.pos) ** 2).sum(1) < 0.36).any()) or not 0 < self.pos[1] < WIDTH
        home = self.pos[0] >= LENGTH
        reward = (self.pos[0] - start) - 0.05 - (5.0 if crash else 0.0) + (5.0 if home else 0.0)
        return self._state(), float(reward), crash or home or self.time >= 150, {"crash": crash, "home": home}


def features(s):
    d = s["rocks"] - s["pos"]
    ahead = d[d[:, 0] > -0.8]
    ahead = ahead[np.argsort(ahead[:, 0] ** 2 + ahead[:, 1] ** 2)][:3]
    f = np.full(13, 1.5, dtype=np.float32)
    f[:2 * len(ahead)] = np.tanh(ahead.ravel() / 4)
    f[6:8] = s["vel"]
    f[8:10] = s["water"]
    f[10] = s["pos"][1] / WIDTH * 2 - 1
    f[11] = s["pos"][0] / LENGTH
    f[12] = 1.0
    return f


def draw(river, path, total):
    im = Image.new("RGB", (400, 100), (70, 130, 180))
    d = ImageDraw.Draw(im)
    for x in range(0, 400, 16):
        for y in range(5, 100, 30):
            v = river._water(np.array([x / 10, y / 10]))
            d.line([x, y, x + 6 * v[0], y + 6 * v[1]], fill=(160, 200, 230))
    for x, y in river.rocks * 10:
        d.ellipse([x - 6, y - 6, x + 6, y + 6], fill=(90, 90, 90))
    d.line([tuple(q) for q in path], fill=(255, 220, 60), width=2)
    d.text((4, 4), "%.1f" % total, fill=(255, 255, 255))
    return im


random.seed(FLAGS.seed)
torch.manual_seed(FLAGS.seed)
torch.set_num_threads(1)
river = Rapids(FLAGS.seed)
brain = torch.nn.Sequential(torch.nn.Linear(13, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(),
                            torch.nn.Linear(64, 4))
adam = torch.optim.Adam(brain.parameters(), lr=2e-3)
brain(torch.zeros(1, 13)).sum().backward()
adam.zero_grad()
scratch = tempfile.mkdtemp()
progress = open(os.path.join(scratch, "progress.csv"), "w")
progress.write("trip,steps,total,home,loss\n")

w = [0] * 11
origin = mark = time.perf_counter_ns()


def lap(i):
    global mark
    here = time.perf_counter_ns()
    w[i] += here - mark
    mark = here


limit = origin + FLAGS.seconds * 1e9
steps = updates = trips = 0
OBS, ACT, RET = [], [], []
totals, loss_value = [], 0.0

while mark < limit:
    s = river.reset()
    lap(0)
    rewards, path, done = [], [], False
    lap(10)
    while not done and mark < limit:
        o = features(s)
        lap(2)
        with torch.no_grad():
            p = torch.softmax(brain(torch.from_numpy(o)), 0).tolist()
        a = random.choices((0, 1, 2, 3), p)[0]
        lap(1)
        s, r, done, info = river.step(a)
        lap(0)
        OBS.append(o)
        ACT.append(a)
        rewards.append(r)
        lap(3)
        path.append((s["pos"][0] * 10, s["pos"][1] * 10))
        steps += 1
        lap(10)
    g, back = 0.0, []
    for r in reversed(rewards):
        g = r + 0.98 * g
        back.append(g)
    totals.append(sum(rewards))
    lap(10)
    RET.extend(reversed(back))
    lap(3)
    if not done:
        break
    trips += 1
    lap(10)
    progress.write(f"{trips},{len(rewards)},{totals[-1]:.3f},{int(info['home'])},{loss_value:.5f}\n")
    progress.flush()
    lap(8)

    if trips % FLAGS.draw_every == 0:
        picture = draw(river, path, totals[-1])
        picture.save(os.path.join(scratch, "trip_%d.png" % (trips % 50)))
        lap(7)

    if trips % FLAGS.trips_per_update == 0:
        X = torch.from_numpy(np.stack(OBS))
        A = torch.tensor(ACT)
        G = torch.tensor(RET)
        OBS, ACT, RET = [], [], []
        lap(4)
        G = (G - G.mean()) / (G.std() + 1e-6)
        lap(10)
        logp = torch.log_softmax(brain(X), 1)
        entropy = -(logp.exp() * logp).sum(1).mean()
        loss = -(logp.gather(1, A[:, None])[:, 0] * G).mean() - 0.01 * entropy
        lap(5)
        adam.zero_grad()
        lap(9)
        loss.backward()
        lap(6)
        adam.step()
        lap(9)
        loss_value = loss.item()
        updates += 1
        lap(10)
lap(10)
took = (mark - origin) / 1e9
progress.close()
for name in os.listdir(scratch):
    os.remove(os.path.join(scratch, name))
os.rmdir(scratch)
titles = ("env", "act", "observe", "store", "sample", "forward", "backward", "render", "log", "optimiser", "own")
print(json.dumps({"env_steps": steps, "updates": updates, "episodes": trips, "seconds": took,
                  "phases": {a: b / 1e9 for a, b in zip(titles, w)}, "calls_of_step": river.n_steps}))
