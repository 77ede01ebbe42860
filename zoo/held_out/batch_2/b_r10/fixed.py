"""Learning from pictures: a gem hunt drawn with Pillow, solved by a small convolutional DQN."""
import argparse
import json
import os
import random
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw

TILE = 12
GRID = 7


def make_artwork(folder):
    """Paints the pictures of the game at a size in which they could also be printed."""
    size = 64
    shapes = {
        "hero": lambda d: (d.ellipse((12, 4, 52, 60), fill=(60, 120, 250, 255)),
                           d.rectangle((24, 20, 40, 30), fill=(255, 255, 255, 255))),
        "gem": lambda d: d.polygon([(32, 4), (58, 26), (32, 60), (6, 26)], fill=(40, 220, 120, 255)),
        "ghost": lambda d: (d.pieslice((8, 6, 56, 62), 180, 360, fill=(240, 60, 60, 255)),
                            d.rectangle((8, 34, 56, 58), fill=(240, 60, 60, 255))),
        "rock": lambda d: d.rounded_rectangle((3, 3, 61, 61), 12, fill=(120, 110, 100, 255)),
    }
    for name, paint in shapes.items():
        img = Image.new("RGBA", (size, size))
        paint(ImageDraw.Draw(img))
        img.save(os.path.join(folder, name + ".png"))


class Artist:
    """Turns the things on the board into a picture."""

    def __init__(self, folder):
        self.folder = folder
        self.sprites = {}
        side = GRID * TILE
        self.paper = Image.new("RGB", (side, side), (15, 15, 25))
        pen = ImageDraw.Draw(self.paper)
        for k in range(0, side, TILE):
            pen.line((k, 0, k, side), fill=(30, 30, 45))
            pen.line((0, k, side, k), fill=(30, 30, 45))

    def sprite(self, kind):
        if kind not in self.sprites:
            img = Image.open(os.path.join(self.folder, kind + ".png"))
            self.sprites[kind] = img.convert("RGBA").resize((TILE, TILE), Image.BILINEAR)
        return self.sprites[kind]

    def paint(self, things):
        canvas = self.paper.copy()
        for kind, (col, row) in things:
            img = self.sprite(kind)
            canvas.paste(img, (col * TILE, row * TILE), img)
        return canvas


class GemHunt:
    MOVES = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}

    def __init__(self, artist, seed):
        self.artist = artist
        self.dice = random.Random(seed)
        self.begin()

    def begin(self):
        cells = [(c, r) for c in range(GRID) for r in range(GRID)]
        spots = self.dice.sample(cells, 10)
        self.hero, self.ghost = spots[0], spots[1]
        self.gems, self.rocks = spots[2:5], spots[5:]
        self.turn = 0

    def picture(self):
        things = ([("rock", p) for p in self.rocks] + [("gem", p) for p in self.gems]
                  + [("ghost", self.ghost), ("hero", self.hero)])
        img = self.artist.paint(things).convert("L").resize((42, 42), Image.BOX)
        return np.asarray(img, dtype=np.uint8)

    def _shift(self, cell, way):
        dc, dr = self.MOVES[way]
        c, r = cell[0] + dc, cell[1] + dr
        if 0 <= c < GRID and 0 <= r < GRID and (c, r) not in self.rocks:
            return c, r
        return cell

    def command(self, way):
        """Carries out a command, returns (points, whether the hunt goes on)."""
        self.turn += 1
        points = -0.02
        self.hero = self._shift(self.hero, way)
        if self.dice.random() < 0.3:
            self.ghost = self._shift(self.ghost, self.dice.choice(list(self.MOVES)))
        if self.hero in self.gems:
            self.gems.remove(self.hero)
            points += 1.0
        if self.hero == self.ghost:
            return points - 1.0, False
        return points, bool(self.gems) and self.turn < 50


class Eye(nn.Module):
    def __init__(self, n_actions):
        super().__init__()
        self.seq = nn.Sequential(
            nn.Conv2d(1, 8, 6, stride=3), nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(16 * 6 * 6, 64), nn.ReLU(), nn.Linear(64, n_actions))

    def forward(self, x):
        return self.seq(x.float().div(255.0))


class Player:
    WAYS = list(GemHunt.MOVES)

    def __init__(self, seed, memory=20_000):
        self.net, self.slow_net = Eye(4), Eye(4)
        self.slow_net.load_state_dict(self.net.state_dict())
        self.opt = torch.optim.Adam(self.net.parameters(), lr=5e-4)
        self.rng = np.random.default_rng(seed)
        self.pic = np.zeros((memory, 42, 42), np.uint8)
        self.nxt = np.zeros((memory, 42, 42), np.uint8)
        self.way = np.zeros(memory, np.int64)
        self.pts = np.zeros(memory, np.float32)
        self.on = np.zeros(memory, np.float32)
        self.size, self.memory, self.lessons = 0, memory, 0

    def decide(self, pic, eps):
        if self.rng.random() < eps:
            return int(self.rng.integers(4))
        with torch.no_grad():
            return int(self.net(torch.from_numpy(pic.copy())[None, None]).argmax())

    def remember(self, pic, way, pts, nxt, on):
        i = self.size % self.memory
        self.pic[i], self.way[i], self.pts[i], self.nxt[i], self.on[i] = pic, way, pts, nxt, on
        self.size += 1

    def study(self, k=32):
        idx = self.rng.integers(min(self.size, self.memory), size=k)
        s, s2 = (torch.from_numpy(m[idx])[:, None] for m in (self.pic, self.nxt))
        a, r, on = (torch.from_numpy(m[idx]) for m in (self.way, self.pts, self.on))
        with torch.no_grad():
            y = r + 0.95 * on * self.slow_net(s2).max(1).values
        loss = F.smooth_l1_loss(self.net(s).gather(1, a[:, None]).squeeze(1), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.lessons += 1
        if self.lessons % 250 == 0:
            self.slow_net.load_state_dict(self.net.state_dict())


def train(args, folder):
    make_artwork(folder)
    game = GemHunt(Artist(folder), args.seed)
    player = Player(args.seed)
    scores, score = [], 0.0
    steps = steps0 = 0
    mark = None
    start = now = time.perf_counter()
    pic = game.picture()
    while now - start < args.seconds:
        way = player.decide(pic, max(0.1, 1.0 - steps / 5000))
        points, goes_on = game.command(player.WAYS[way])
        after = game.picture()
        player.remember(pic, way, points, after, float(goes_on))
        score += points
        steps += 1
        pic = after
        if not goes_on:
            scores.append(score)
            score = 0.0
            game.begin()
            pic = game.picture()
            if len(scores) % 50 == 0:
                print(f"hunt {len(scores)}: {np.mean(scores[-50:]):.2f} points")
        if steps >= 200 and steps % 4 == 0:
            player.study()
        now = time.perf_counter()
        if mark is None and now - start >= 1.2:
            mark, steps0 = now, steps
    n, s = steps - steps0, now - mark
    return {"env_steps": n, "seconds": round(s, 3), "env_steps_per_s": round(n / s, 2), "updates": player.lessons}


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=8.0)
    ap.add_argument("--seed", type=int, default=0)
    opts = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(opts.seed)
    tmp = tempfile.mkdtemp()
    try:
        result = train(opts, tmp)
    finally:
        shutil.rmtree(tmp)
    print(json.dumps(result))
