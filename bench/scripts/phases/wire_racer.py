"""A racing game in its own thread talks JSON lines over TCP; the driver (dueling, n-step) learns over the wire."""
import argparse
import json
import math
import os
import random
import socket
import tempfile
import threading
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
from PIL import Image, ImageDraw


class Track:
    BEAMS = [-1.2, -0.7, -0.3, 0.0, 0.3, 0.7, 1.2]

    def __init__(self, seed):
        self.rnd = random.Random(seed)
        self.served = 0

    def lay_out(self):
        ph = [self.rnd.uniform(0, 6.28) for _ in range(3)]
        self.radius = [20 + 3 * math.sin(2 * t + ph[0]) + 2 * math.sin(3 * t + ph[1]) + math.sin(5 * t + ph[2])
                       for t in [i * 2 * math.pi / 180 for i in range(180)]]
        self.a, self.v, self.n, self.gone = 0.0, 1.0, 0, 0.0
        self.x, self.y, self.head = self.radius[0], 0.0, math.pi / 2

    def off(self, x, y):
        k = int(math.atan2(y, x) / (2 * math.pi) * 180) % 180
        return abs(math.hypot(x, y) - self.radius[k]) - 2.5

    def beam(self, angle):
        c, s, d = math.cos(self.head + angle), math.sin(self.head + angle), 0.4
        while d < 12 and self.off(self.x + c * d, self.y + s * d) <= 0:
            d += 0.8
        return d

    def message(self, reward, crashed, late):
        return {"beams": [round(self.beam(b), 3) for b in self.BEAMS], "speed": round(self.v, 4), "reward": reward,
                "crashed": crashed, "late": late, "xy": [round(self.x, 3), round(self.y, 3)]}

    def serve(self, ask):
        if ask["cmd"] == "new":
            self.lay_out()
            return self.message(0.0, False, False)
        if ask["cmd"] == "map":
            return {"radius": self.radius}
        self.served += 1
        steer, gas = [(-1, 0.3), (0, 0.3), (1, 0.3), (0, 1.0), (0, -0.8)][ask["do"]]
        for _ in range(3):
            self.v = min(3.0, max(0.2, self.v + 0.12 * gas - 0.01 * self.v))
            self.head += 0.09 * steer * (1.2 - 0.2 * self.v)
            self.x += 0.15 * self.v * math.cos(self.head)
            self.y += 0.15 * self.v * math.sin(self.head)
        b = math.atan2(self.y, self.x)
        moved = (b - self.a + math.pi) % (2 * math.pi) - math.pi
        self.a, self.n, self.gone = b, self.n + 1, self.gone + moved
        crashed = self.off(self.x, self.y) > 0
        return self.message(12 * moved - (3.0 if crashed else 0.0), crashed, self.n >= 250)


def host(server, seed, tracks):
    while True:
        try:
            link, _ = server.accept()
        except OSError:
            return
        track = Track(seed)
        tracks.append(track)
        lines = link.makefile("rwb")
        for line in lines:
            lines.write(json.dumps(track.serve(json.loads(line))).encode() + b"\n")
            lines.flush()


class Wire:
    def __init__(self, port):
        self.s = socket.create_connection(("127.0.0.1", port))
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.f = self.s.makefile("rb")

    def ask(self, text):
        self.s.sendall(text)
        return self.f.readline()


class Dueling(nn.Module):
    def __init__(self, n_in, n_act, h=96):
        super().__init__()
        self.base = nn.Sequential(nn.Linear(n_in, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU())
        self.adv, self.val = nn.Linear(h, n_act), nn.Linear(h, 1)

    def forward(self, x):
        h = self.base(x)
        a = self.adv(h)
        return self.val(h) + a - a.mean(-1, keepdim=True)


class Driver:
    N, G = 3, 0.97

    def __init__(self, room=20000):
        self.q, self.q2 = Dueling(16, 5), Dueling(16, 5)
        self.q2.load_state_dict(self.q.state_dict())
        self.q2.requires_grad_(False)
        self.opt = torch.optim.Adam(self.q.parameters(), lr=7e-4)
        self.tail, self.prev = deque(), None
        self.mem, self.room = [], room

    def sense(self, line, fresh=False):
        msg = json.loads(line)
        now = np.array([b / 12 for b in msg["beams"]] + [msg["speed"] / 3], dtype=np.float32)
        x = np.concatenate([now, now if fresh or self.prev is None else self.prev])
        self.prev = now
        return msg, x

    def steer(self, x, eps):
        if random.random() < eps:
            return random.choice((0, 1, 1, 2, 3, 4))
        with torch.inference_mode():
            return self.q(torch.from_numpy(x)).argmax().item()

    def remember(self, x, a, r, y, dead, over):
        self.tail.append((x, a, r))
        while self.tail and (len(self.tail) == self.N or over):
            g = 0.0
            for _, _, b in reversed(self.tail):
                g = b + self.G * g
            x0, a0, _ = self.tail[0]
            item = (x0, a0, g, y, 0.0 if dead else self.G ** len(self.tail))
            if len(self.mem) < self.room:
                self.mem.append(item)
            else:
                self.mem[random.randrange(self.room)] = item
            self.tail.popleft()

    def draw_cards(self, n):
        x, a, g, y, f = zip(*random.choices(self.mem, k=n))
        return (torch.from_numpy(np.array(x)), torch.tensor(a), torch.tensor(g, dtype=torch.float32),
                torch.from_numpy(np.array(y)), torch.tensor(f, dtype=torch.float32))


def paint(radius, path, where):
    im = Image.new("RGB", (240, 240), (30, 110, 40))
    d = ImageDraw.Draw(im)
    for edge, c in ((2.5, (60, 60, 60)), (-2.5, (30, 110, 40))):
        d.polygon([(120 + 4 * (r + edge) * math.cos(i * math.pi / 90), 120 + 4 * (r + edge) * math.sin(i * math.pi / 90))
                   for i, r in enumerate(radius)], fill=c)
    d.line([(120 + 4 * x, 120 + 4 * y) for x, y in path], fill=(250, 60, 60), width=2)
    im.save(where)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=10.0)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    server, tracks = socket.create_server(("127.0.0.1", 0)), []
    threading.Thread(target=host, args=(server, args.seed, tracks), daemon=True).start()
    wire, drv = Wire(server.getsockname()[1]), Driver()
    drv.q(torch.zeros(2, 16)).sum().backward()
    drv.opt.zero_grad()
    album = tempfile.TemporaryDirectory()

    w, calls, clock = [0] * 12, 0, time.perf_counter_ns
    zero = last = clock()

    def cut(i):
        nonlocal last
        c = clock()
        w[i] += c - last
        last = c

    till = zero + args.seconds * 1e9
    n, updates, races, record, laps_done = 0, 0, 0, 0.0, deque(maxlen=30)
    while last < till:
        line = wire.ask(b'{"cmd": "new"}\n')
        cut(0)
        msg, x = drv.sense(line, True)
        cut(1)
        over, total, path = False, 0.0, [msg["xy"]]
        cut(11)
        while not over and last < till:
            eps = 0.04 + 0.96 * math.exp(-n / 2500)
            cut(11)
            a = drv.steer(x, eps)
            cut(2)
            line = wire.ask(b'{"cmd": "do", "do": %d}\n' % a)
            cut(0)
            msg, y = drv.sense(line)
            cut(1)
            n += 1
            over = msg["crashed"] or msg["late"]
            total += msg["reward"]
            path.append(msg["xy"])
            r = msg["reward"] - 0.05 * (min(msg["beams"]) < 1.0)
            cut(11)
            drv.remember(x, a, r, y, msg["crashed"], over)
            cut(3)
            x = y
            if n % 5 == 0 and len(drv.mem) > 200:
                bx, ba, bg, by, bf = drv.draw_cards(64)
                cut(4)
                with torch.no_grad():
                    nxt = drv.q2(by).gather(1, drv.q(by).argmax(1, keepdim=True)).squeeze(1)
                loss = nn.functional.huber_loss(drv.q(bx).gather(1, ba.unsqueeze(1)).squeeze(1), bg + bf * nxt)
                cut(5)
                drv.opt.zero_grad()
                cut(7)
                loss.backward()
                cut(6)
                drv.opt.step()
                cut(7)
                torch._foreach_lerp_(list(drv.q2.parameters()), [p.detach() for p in drv.q.parameters()], 0.01)
                cut(8)
                updates += 1
                if updates % 80 == 0:
                    torch.save(drv.q.state_dict(), os.path.join(album.name, "driver.pt"))
                    cut(10)
        if not over:
            break
        races += 1
        laps_done.append(total)
        record = max(record, total)
        cut(11)
        if races % 4 == 0:
            plan = json.loads(wire.ask(b'{"cmd": "map"}\n'))["radius"]
            paint(plan, path, os.path.join(album.name, f"race{races % 20}.png"))
            cut(9)
    cut(11)
    wire.f.close()
    wire.s.close()
    server.close()
    album.cleanup()
    labels = ["env", "observe", "act", "store", "sample", "forward", "backward", "optimiser", "target", "render",
              "save", "own"]
    print(json.dumps({"env_steps": n, "updates": updates, "episodes": races, "seconds": (last - zero) / 1e9,
                      "phases": {k: v / 1e9 for k, v in zip(labels, w)}, "calls_of_step": tracks[0].served}))


if __name__ == "__main__":
    main()
